#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/pickle/pickle_value.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>

#include <array>

namespace ddp::detail {

void PickleArena::charge(uint64_t bytes) {
  check_budget(bytes, left_);
  left_ -= bytes;
}

std::string kind_of(const PickleObject& object) {
  if (const auto* global = std::get_if<const PickleGlobal*>(&object.content)) {
    return "'" + (*global)->name + "'";
  }
  if (const auto* unknown = std::get_if<PickleUnknown>(&object.content)) {
    return "'" + unknown->name + "'";
  }
  constexpr std::array<const char*, 8> kKinds{// in the variant's order
                                              "a string",
                                              "a list",
                                              "a tuple",
                                              "a dict",
                                              "",
                                              "",
                                              "a storage",
                                              "a tensor"};
  return kKinds[object.content.index()];
}

std::string kind_of(const PickleValue& value) {
  if (auto* const* object = std::get_if<PickleObject*>(&value)) {
    return kind_of(**object);
  }
  constexpr std::array<const char*, 4> kKinds{
      "None", "a bool", "an integer", "a float"};
  return kKinds[value.index()];
}

} // namespace ddp::detail
