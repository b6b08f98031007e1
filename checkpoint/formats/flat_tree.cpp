#include <checkpoint/formats/common/utf8.h>
#include <checkpoint/formats/flat_tree.h>
#include <checkpoint/formats/pickle/pickle_tree.h>
#include <ddp/internal/check.h>
#include <ddp/support/containers.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace ddp::detail {
namespace {

using c10::IValue;
using Json = nlohmann::json;

// JSON has arrays, texts, numbers, truth and null as they are; the rest is an
// object of one entry:
constexpr const char* kDictKind = "dict"; // [[key, value], ...]
constexpr const char* kFloatKind = "float"; // "nan", "inf", "-inf"
constexpr const char* kTensorKind = "tensor"; // its name
constexpr const char* kTupleKind = "tuple"; // [value, ...]

void check_depth(int depth) {
  DDP_CHECK_VALUE(
      depth < kMaxDepth,
      "its values are nested more than {} deep, or contain themselves",
      kMaxDepth);
}

class Flattener {
 public:
  Json flatten(const IValue& value, const std::string& place, int depth);

  StateDict take_tensors() {
    return std::move(tensors_);
  }

 private:
  template <typename Values>
  Json flatten_all(const Values& values, const std::string& place, int depth);
  Json flatten_dict(const IValue& value, const std::string& place, int depth);
  Json flatten_tensor(const at::Tensor& tensor, std::string name);

  StateDict tensors_;
};

std::string below(const std::string& place, const std::string& name) {
  return place.empty() ? name : place + "." + name;
}

Json flatten_text(const std::string& text, const std::string& place) {
  DDP_CHECK_VALUE(
      is_utf8(text), "'{}' is or has text that is not UTF-8", place);
  return text;
}

Json flatten_number(double number) {
  if (std::isfinite(number)) {
    return number;
  }
  const auto* name = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  return {{kFloatKind, name}};
}

Json Flattener::flatten(
    const IValue& value,
    const std::string& place,
    int depth) {
  if (value.isTensor()) {
    return flatten_tensor(value.toTensor(), place);
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
    return flatten_text(value.toStringRef(), place);
  }
  check_depth(depth);
  if (value.isList()) {
    return flatten_all(value.toListRef(), place, depth);
  }
  if (value.isTuple()) {
    return {
        {kTupleKind, flatten_all(value.toTupleRef().elements(), place, depth)}};
  }
  DDP_CHECK_TYPE(
      value.isGenericDict(),
      "'{}' is a {}; a file takes tensors, numbers, strings, none, lists, "
      "tuples and dicts",
      place,
      value.tagKind());
  return flatten_dict(value, place, depth);
}

template <typename Values>
Json Flattener::flatten_all(
    const Values& values,
    const std::string& place,
    int depth) {
  auto all = Json::array();
  for (const auto& value : values) {
    const auto name = std::to_string(all.size());
    all.push_back(flatten(value, below(place, name), depth + 1));
  }
  return all;
}

Json Flattener::flatten_dict(
    const IValue& value,
    const std::string& place,
    int depth) {
  auto all = Json::array();
  for (const auto& entry : value.toGenericDict()) {
    const auto& key = entry.key();
    DDP_CHECK_TYPE(
        key.isString() || key.isInt(),
        "'{}' has a key that is a {}; a file takes strings and integers",
        place,
        key.tagKind());
    const auto name =
        key.isInt() ? std::to_string(key.toInt()) : key.toStringRef();
    const auto in_json =
        key.isInt() ? Json(key.toInt()) : flatten_text(name, place);
    auto flat = flatten(entry.value(), below(place, name), depth + 1);
    all.push_back(Json::array({in_json, std::move(flat)}));
  }
  return {{kDictKind, std::move(all)}};
}

Json Flattener::flatten_tensor(const at::Tensor& tensor, std::string name) {
  DDP_CHECK_VALUE(tensor.defined(), "'{}' is a tensor that is undefined", name);
  while (tensors_.contains(name)) { // {"a": {"b": x}, "a.b": y}
    name += "'";
  }
  tensors_.insert(name, tensor);
  return {{kTensorKind, name}};
}

class Unflattener {
 public:
  explicit Unflattener(const StateDict& tensors) : tensors_(tensors) {}

  IValue unflatten(const Json& node, int depth) const;

 private:
  IValue unflatten_object(const Json& node, int depth) const;
  IValue unflatten_dict(const Json& entries, int depth) const;
  std::vector<IValue> unflatten_all(const Json& node, int depth) const;

  const StateDict& tensors_;
};

IValue Unflattener::unflatten(const Json& node, int depth) const {
  check_depth(depth);
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
    return unflatten_object(node, depth);
  }
  auto list = new_list();
  for (auto& value : unflatten_all(node, depth)) {
    list.push_back(std::move(value));
  }
  return list;
}

std::vector<IValue> Unflattener::unflatten_all(const Json& node, int depth)
    const {
  DDP_CHECK(node.is_array(), "it has no array where one is expected");
  std::vector<IValue> values;
  values.reserve(node.size());
  for (const auto& item : node) {
    values.push_back(unflatten(item, depth + 1));
  }
  return values;
}

IValue Unflattener::unflatten_object(const Json& node, int depth) const {
  DDP_CHECK(node.size() == 1, "it has an object of {} keys", node.size());
  const auto& kind = node.begin().key();
  const auto& content = node.begin().value();
  if (kind == kTensorKind) {
    const auto name = content.get<std::string>();
    const auto* tensor = tensors_.find(name);
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
    return c10::ivalue::Tuple::create(unflatten_all(content, depth));
  }
  DDP_CHECK(kind == kDictKind, "it has an object '{}'", kind);
  return unflatten_dict(content, depth);
}

IValue Unflattener::unflatten_dict(const Json& entries, int depth) const {
  constexpr uint64_t kMaxSlotsPerKey = 1024;
  std::vector<IValue> keys;
  for (const auto& entry : entries) {
    DDP_CHECK(
        entry.is_array() && entry.size() == 2 &&
            (entry[0].is_string() || entry[0].is_number_integer()),
        "a dict has an entry that is not a key and a value");
    keys.push_back(unflatten(entry[0], depth + 1));
  }
  DDP_CHECK(
      dict_slots(keys) <= kMaxSlotsPerKey * (1 + keys.size()),
      "a dict has keys that are made to collide");
  auto dict = new_dict();
  for (size_t i = 0; i < keys.size(); ++i) {
    DDP_CHECK(
        dict.insert(keys[i], unflatten(entries[i][1], depth + 1)).second,
        "a dict has the key {} twice",
        keys[i]);
  }
  return dict;
}

bool is_dict_of_tensors(const IValue& value, const StateDict& tensors) {
  if (!value.isGenericDict() ||
      value.toGenericDict().size() != tensors.size()) {
    return false;
  }
  for (const auto& entry : value.toGenericDict()) {
    if (!entry.key().isString() || !entry.value().isTensor()) {
      return false;
    }
  }
  return true;
}

} // namespace

FlatTree flatten(const IValue& value) {
  Flattener flattener;
  const auto json = flattener.flatten(value, "", 0);
  FlatTree flat{flattener.take_tensors(), ""};
  if (!is_dict_of_tensors(value, flat.tensors)) {
    flat.structure = json.dump();
  }
  return flat;
}

IValue unflatten(const std::string& structure, const StateDict& tensors) try {
  return Unflattener(tensors).unflatten(Json::parse(structure), 0);
} catch (const Json::exception& error) {
  DDP_THROW(Error, "its metadata are not a tree of values: {}", error.what());
}

IValue tree_of(const StateDict& tensors) {
  auto dict = new_dict();
  for (const auto& entry : tensors) {
    dict.insert(entry.key(), entry.value());
  }
  return dict;
}

} // namespace ddp::detail
