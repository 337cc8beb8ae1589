#pragma once

#include <optional>
#include <string>

#include "nlohmann/json.hpp"

#include "common/resources.h"

// What the shapes of client/json and client/explanation_json are made of.
namespace cohort {

// Keys stay in the order in which they are written.
using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

inline Json OrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

// A whole number where it is one.
inline Json AmountJson(Amount amount) {
  if (amount.ten_thousandths() % Amount::kScale == 0) {
    return amount.WholeUnits();
  }
  return amount.ToDouble();
}

}  // namespace cohort
