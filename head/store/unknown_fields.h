#pragma once

#include "google/protobuf/message.h"

namespace cohort::head {

// Drops the fields, at any depth, that this program does not know: a row with
// such ones is a damaged one.  Gives whether there were any.
//
// As Message::DiscardUnknownFields, which costs ten times as much, and which
// would copy each map: entries of maps have none, once they are parsed.
bool DropUnknownFields(google::protobuf::Message& message);

}  // namespace cohort::head
