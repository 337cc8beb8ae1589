#pragma once

#include <string>

namespace cohort {

// The name of the user that this process runs as; its number where the user
// database has none.
std::string OsUserName();

}  // namespace cohort
