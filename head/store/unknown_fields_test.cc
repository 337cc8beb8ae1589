#include "head/store/unknown_fields.h"

#include <string>

#include "gtest/gtest.h"

#include "cohort/v1/storage.pb.h"

namespace cohort::head {
namespace {

storage::v1::SpecRow SomeRow() {
  storage::v1::SpecRow row;
  row.set_job_id("j");
  (*row.mutable_spec()->mutable_launch()->mutable_environment())["A"] = "1";
  row.mutable_spec()->mutable_scaling()->add_tolerations()->set_key("k");
  return row;
}

void AddUnknown(google::protobuf::Message& message) {
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(99, 1);
}

TEST(UnknownFieldsTest, WhatIsKnownStays) {
  storage::v1::SpecRow row = SomeRow();
  EXPECT_FALSE(DropUnknownFields(row));
  EXPECT_EQ(row.ShortDebugString(), SomeRow().ShortDebugString());
}

TEST(UnknownFieldsTest, AtAnyDepthTheyAreDropped) {
  const auto expect_dropped = [](storage::v1::SpecRow row) {
    EXPECT_TRUE(DropUnknownFields(row));
    EXPECT_EQ(row.ShortDebugString(), SomeRow().ShortDebugString());
  };
  storage::v1::SpecRow row = SomeRow();
  AddUnknown(row);
  expect_dropped(row);
  row = SomeRow();
  AddUnknown(*row.mutable_spec()->mutable_launch());
  expect_dropped(row);
  row = SomeRow();
  AddUnknown(*row.mutable_spec()->mutable_scaling()->mutable_tolerations(0));
  expect_dropped(row);
}

}  // namespace
}  // namespace cohort::head
