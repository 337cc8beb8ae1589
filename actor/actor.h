#pragma once

// Actors: objects in processes of their own, and calls to them.  What a program
// includes (docs/design/0012-actors.md, examples/counter).
#include "actor/future.h"   // IWYU pragma: export
#include "actor/handle.h"   // IWYU pragma: export
#include "actor/options.h"  // IWYU pragma: export
#include "actor/runtime.h"  // IWYU pragma: export
#include "actor/wait.h"     // IWYU pragma: export
