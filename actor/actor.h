#pragma once

// Actors: objects in processes of their own, and calls to them; tasks:
// functions that run where there is room.  What a program includes
// (docs/actors.md, examples/counter).
#include "actor/function.h"      // IWYU pragma: export
#include "actor/future.h"        // IWYU pragma: export
#include "actor/group.h"         // IWYU pragma: export
#include "actor/handle.h"        // IWYU pragma: export
#include "actor/is_cancelled.h"  // IWYU pragma: export
#include "actor/options.h"       // IWYU pragma: export
#include "actor/runtime.h"       // IWYU pragma: export
#include "actor/task_options.h"  // IWYU pragma: export
#include "actor/this_rank.h"     // IWYU pragma: export
#include "actor/wait.h"          // IWYU pragma: export
