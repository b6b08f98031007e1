#include <checkpoint/formats/tree_flatten.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <ddp/support/containers.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ddp::detail {
namespace {

using c10::IValue;
using Json = nlohmann::json;

// Lists, strings, numbers, bools and none are JSON values; other values are an
// object of one entry:
constexpr const char* kDictKind = "dict"; // [[key, value], ...]
constexpr const char* kFloatKind = "float"; // "nan", "inf", "-inf"
constexpr const char* kTensorKind = "tensor"; // its name
constexpr const char* kTupleKind = "tuple"; // [value, ...]

Json flatten_number(double number) {
  if (std::isfinite(number)) {
    return number;
  }
  const auto* name = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return {{kFloatKind, name}};
}

Json flatten_tensor(
    const at::Tensor& tensor,
    std::string name,
    StateDict& tensors) {
  while (tensors.contains(name)) { // {"a": {"b": x}, "a.b": y}
    name += "'";
  }
  tensors.insert(name, tensor);
  return {{kTensorKind, name}};
}

Json flatten_value(
    const IValue& value,
    const std::string& place,
    StateDict& tensors) {
  if (value.isTensor()) {
    return flatten_tensor(value.toTensor(), place, tensors);
  }
  if (value.isNone()) {
    return nullptr;
  }
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    return flatten_number(value.toDouble());
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  auto items = Json::array();
  for_each_item(value, [&](const IValue& key, const IValue& item) {
    auto flat = flatten_value(item, place_in(place, key), tensors);
    items.push_back(
        value.isGenericDict()
            ? Json::array({flatten_value(key, "", tensors), std::move(flat)})
            : std::move(flat));
  });
  if (value.isList()) {
    return items;
  }
  return {{value.isTuple() ? kTupleKind : kDictKind, std::move(items)}};
}

IValue unflatten_value(const Json& node, const StateDict& tensors, int depth);

std::vector<IValue> unflatten_all(
    const Json& node,
    const StateDict& tensors,
    int depth) {
  check_depth(depth);
  DDP_CHECK(node.is_array(), "expected an array");
  std::vector<IValue> values;
  values.reserve(node.size());
  for (const auto& item : node) {
    values.push_back(unflatten_value(item, tensors, depth + 1));
  }
  return values;
}

IValue unflatten_dict(
    const Json& entries,
    const StateDict& tensors,
    int depth) {
  constexpr uint64_t kMaxSlotsPerKey = 1024;
  check_depth(depth);
  std::vector<IValue> keys;
  for (const auto& entry : entries) {
    DDP_CHECK(
        entry.is_array() && entry.size() == 2 &&
            (entry[0].is_string() || entry[0].is_number_integer()),
        "an entry of a dict is not a pair of key and value");
    keys.push_back(unflatten_value(entry[0], tensors, depth + 1));
  }
  DDP_CHECK(
      dict_slots(keys) <= kMaxSlotsPerKey * (1 + keys.size()),
      "too many keys of a dict collide");
  auto dict = new_dict();
  for (size_t i = 0; i < keys.size(); ++i) {
    DDP_CHECK(
        dict.insert(keys[i], unflatten_value(entries[i][1], tensors, depth + 1))
            .second,
        "a dict has the key {} twice",
        keys[i]);
  }
  return dict;
}

IValue unflatten_object(const Json& node, const StateDict& tensors, int depth) {
  DDP_CHECK(node.size() == 1, "an object has {} keys, expected 1", node.size());
  const auto& kind = node.begin().key();
  const auto& content = node.begin().value();
  if (kind == kTensorKind) {
    const auto name = content.get<std::string>();
    const auto* tensor = tensors.find(name);
    DDP_CHECK(tensor != nullptr, "the file has no tensor '{}'", name);
    return *tensor;
  }
  if (kind == kFloatKind) {
    const auto name = content.get<std::string>();
    constexpr auto kInfinity = std::numeric_limits<double>::infinity();
    return name == "inf" ? kInfinity
        : name == "-inf" ? -kInfinity
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (kind == kTupleKind) {
    return c10::ivalue::Tuple::create(unflatten_all(content, tensors, depth));
  }
  DDP_CHECK(kind == kDictKind, "unknown object '{}'", kind);
  return unflatten_dict(content, tensors, depth);
}

IValue unflatten_value(const Json& node, const StateDict& tensors, int depth) {
  if (node.is_null()) {
    return {};
  }
  if (node.is_boolean()) {
    return node.get<bool>();
  }
  if (node.is_number_integer()) {
    return node.get<int64_t>();
  }
  if (node.is_number()) {
    return node.get<double>();
  }
  if (node.is_string()) {
    return node.get<std::string>();
  }
  if (node.is_object()) {
    return unflatten_object(node, tensors, depth);
  }
  auto list = new_list();
  for (auto& value : unflatten_all(node, tensors, depth)) {
    list.push_back(std::move(value));
  }
  return list;
}

bool is_dict_of_tensors(const IValue& value, size_t tensors) {
  if (!value.isGenericDict()) {
    return false;
  }
  const auto dict = value.toGenericDict();
  return dict.size() == tensors &&
      std::all_of(dict.begin(), dict.end(), [](const auto& entry) {
           return entry.key().isString() && entry.value().isTensor();
         });
}

} // namespace

FlattenedTree tree_flatten(const IValue& value) {
  FlattenedTree flat;
  const auto json = flatten_value(value, "", flat.tensors);
  if (!is_dict_of_tensors(value, flat.tensors.size())) {
    flat.structure = json.dump();
  }
  return flat;
}

IValue tree_unflatten(
    const std::string& structure,
    const StateDict& tensors) try {
  constexpr uint64_t kContainerBytes = 256; // as JSON and as a value
  const auto containers =
      std::count_if(structure.begin(), structure.end(), [](char c) {
        return c == '[' || c == '{';
      });
  check_budget(
      kContainerBytes * static_cast<uint64_t>(containers),
      value_budget(structure.size()));
  return unflatten_value(Json::parse(structure), tensors, 0);
} catch (const Json::exception& error) {
  DDP_THROW(
      Error,
      "its metadata does not describe a tree of values: {}",
      error.what());
}

IValue take_value(SafetensorsFile& file) {
  const auto structure = file.metadata.extract(kTreeKey);
  return structure.empty() ? to_generic_dict(file.tensors)
                           : tree_unflatten(structure.mapped(), file.tensors);
}

IValue to_generic_dict(const StateDict& tensors) {
  auto dict = new_dict();
  for (const auto& entry : tensors) {
    dict.insert(entry.key(), entry.value());
  }
  return dict;
}

} // namespace ddp::detail
