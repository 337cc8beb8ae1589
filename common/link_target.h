#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace cohort {

// Whether a symbolic link to `target`, in a directory `depth` below the top of
// a tree, stays in the tree wherever that lies: `target` is relative, has ".."
// at its start only, and no more of them than `depth`.
//
// Looks at the text only, and yet holds when other such links are on the way: a
// ".." after a name could lead out of where a link had led.
bool StaysInTree(absl::string_view target, size_t depth);

}  // namespace cohort
