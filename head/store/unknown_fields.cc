#include "head/store/unknown_fields.h"

#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace cohort::head {

bool DropUnknownFields(google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  const google::protobuf::Reflection& fields = *message.GetReflection();
  bool dropped = !fields.GetUnknownFields(message).empty();
  if (dropped) fields.MutableUnknownFields(&message)->Clear();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        field->is_map()) {
      continue;
    }
    if (!field->is_repeated()) {
      if (!fields.HasField(message, field)) continue;
      dropped |= DropUnknownFields(*fields.MutableMessage(&message, field));
      continue;
    }
    for (int k = 0; k < fields.FieldSize(message, field); ++k) {
      dropped |=
          DropUnknownFields(*fields.MutableRepeatedMessage(&message, field, k));
    }
  }
  return dropped;
}

}  // namespace cohort::head
