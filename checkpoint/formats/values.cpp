#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_tensor.h>

#include <nlohmann/json.hpp>

namespace ddp::detail {
namespace {

using c10::IValue;

bool is_utf8(const std::string& text) {
  try {
    nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

void check_tensor(const at::Tensor& tensor, const std::string& name) {
  DDP_CHECK_VALUE(tensor.defined(), "{} is an undefined tensor", name);
  check_readable(tensor, "tensor " + name);
  DDP_CHECK_TYPE(
      !python_dtype(tensor.scalar_type()).empty(),
      "{} is a tensor of dtype {}, which this library does not write; convert "
      "it first",
      name,
      tensor.scalar_type());
}

void check_value(const IValue& value, const std::string& place, int depth) {
  const auto name = place.empty() ? "the value" : "'" + place + "'";
  if (value.isTensor()) {
    check_tensor(value.toTensor(), name);
  } else if (value.isString()) {
    DDP_CHECK_VALUE(
        is_utf8(value.toStringRef()), "{} is a string that is not UTF-8", name);
  } else if (value.isList() || value.isTuple() || value.isGenericDict()) {
    check_depth(depth);
    for_each_item(value, [&](const IValue& key, const IValue& item) {
      DDP_CHECK_TYPE(
          key.isString() || key.isInt(),
          "{} has a key of type {}; keys must be strings or integers",
          name,
          key.tagKind());
      DDP_CHECK_VALUE(
          is_utf8(key_text(key)), "{} has a key that is not UTF-8", name);
      check_value(item, place_in(place, key), depth + 1);
    });
  } else {
    DDP_CHECK_TYPE(
        value.isNone() || value.isBool() || value.isInt() || value.isDouble(),
        "{} is of type {}; a file can contain tensors, numbers, bools, "
        "strings, None, lists, tuples and dicts",
        name,
        value.tagKind());
  }
}

} // namespace

std::string key_text(const IValue& key) {
  return key.isInt() ? std::to_string(key.toInt()) : key.toStringRef();
}

std::string place_in(const std::string& place, const IValue& key) {
  return place.empty() ? key_text(key) : place + "." + key_text(key);
}

void for_each_item(
    const IValue& value,
    const std::function<void(const IValue&, const IValue&)>& function) {
  if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      function(entry.key(), entry.value());
    }
  } else if (value.isList() || value.isTuple()) {
    const auto items = value.isList()
        ? value.toListRef()
        : c10::ArrayRef<IValue>(value.toTupleRef().elements());
    for (size_t i = 0; i < items.size(); ++i) {
      function(static_cast<int64_t>(i), items[i]);
    }
  }
}

void check_depth(int depth) {
  constexpr int kMaxDepth = 100;
  DDP_CHECK_VALUE(
      depth < kMaxDepth,
      "its values are nested more than {} levels deep, or contain themselves",
      kMaxDepth);
}

uint64_t value_budget(uint64_t size) {
  constexpr uint64_t kAlways = uint64_t{128} << 20;
  constexpr uint64_t kPerByte = 24;
  return kAlways + kPerByte * size;
}

void check_budget(uint64_t bytes, uint64_t budget) {
  DDP_CHECK(
      bytes <= budget,
      "the values need far more memory than the file's size justifies");
}

void check_writable(const IValue& value) {
  check_value(value, "", 0);
}

} // namespace ddp::detail
