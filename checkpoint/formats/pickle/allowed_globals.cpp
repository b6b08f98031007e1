#include <ATen/ops/empty.h>
#include <checkpoint/formats/pickle/allowed_globals.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <ddp/internal/check.h>

#include <algorithm>

namespace ddp::detail {
namespace {

constexpr size_t kMaxDimensions = 64; // the limit of LibTorch's kernels
// The memory that LibTorch allocates for a tensor in addition to its data.
constexpr uint64_t kTensorBytes = 512;

using Values = std::vector<PickleValue>;

template <typename Content>
const Content& expect(const PickleValue& value, const char* what) {
  const auto* content = content_of<Content>(value);
  DDP_CHECK(content != nullptr, "expected {}, found {}", what, kind_of(value));
  return *content;
}

int64_t expect_size(const PickleValue& value, const char* what) {
  const auto* number = content_of<int64_t>(value);
  DDP_CHECK(
      number != nullptr && *number >= 0,
      "expected a non-negative integer as {}, found {}",
      what,
      number == nullptr ? kind_of(value) : std::to_string(*number));
  return *number;
}

std::vector<int64_t> expect_sizes(const PickleValue& value, const char* what) {
  const auto& items = expect<PickleTuple>(value, what).items;
  DDP_CHECK(
      items.size() <= kMaxDimensions,
      "a tensor has {} dimensions; this library supports at most {}",
      items.size(),
      kMaxDimensions);
  std::vector<int64_t> sizes;
  for (const auto& item : items) {
    sizes.push_back(expect_size(item, what));
  }
  return sizes;
}

void check_count(const Values& arguments, size_t least, size_t most) {
  DDP_CHECK(
      arguments.size() >= least && arguments.size() <= most,
      "it has {} arguments, expected {}{}",
      arguments.size(),
      least,
      least == most ? "" : " to " + std::to_string(most));
}

// The number of elements that a storage needs for the tensor.
int64_t reach(
    const std::vector<int64_t>& sizes,
    const std::vector<int64_t>& strides,
    int64_t offset) {
  int64_t elements = 1; // sizes of 0 count as 1, as LibTorch multiplies all
  int64_t last = offset;
  bool overflow = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    const auto size = std::max<int64_t>(sizes[i], 1);
    overflow = overflow || __builtin_mul_overflow(elements, size, &elements) ||
        __builtin_mul_overflow(size - 1, strides[i], &step) ||
        __builtin_add_overflow(last, step, &last);
  }
  overflow = overflow || __builtin_add_overflow(last, 1, &last);
  // The bytes must not overflow either, with the widest dtype.
  overflow = overflow || __builtin_mul_overflow(elements, 16, &elements);
  DDP_CHECK(
      !overflow,
      "a tensor of sizes {} and strides {} at offset {} exceeds 2^63 - 1 bytes "
      "at 16 bytes per element",
      at::IntArrayRef(sizes),
      at::IntArrayRef(strides),
      offset);
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  return empty ? 0 : last;
}

void check_hooks(const PickleValue& value) {
  const auto* dict = content_of<PickleDict>(value);
  DDP_CHECK(
      std::holds_alternative<std::monostate>(value) ||
          (dict != nullptr && dict->items.empty()),
      "a tensor has hooks, which a file cannot contain: {}",
      kind_of(value));
}

// The metadata mark tensors whose conjugate or negative bit is set.
void set_metadata(at::Tensor& tensor, const PickleValue& value) {
  if (std::holds_alternative<std::monostate>(value)) {
    return;
  }
  const auto& items = expect<PickleDict>(value, "a tensor's metadata").items;
  for (size_t i = 0; i < items.size(); i += 2) {
    const auto& name = expect<std::string>(items[i], "a metadata name");
    const bool set = expect<bool>(items[i + 1], "a bool");
    if (name == "conj" && tensor.is_complex()) {
      tensor._set_conj(set);
    } else if (name == "neg") {
      tensor._set_neg(set);
    } else {
      DDP_THROW(
          Error, "a tensor's metadata has '{}', which is not supported", name);
    }
  }
}

c10::ScalarType expect_dtype(const PickleValue& value) {
  const auto* global = expect<const PickleGlobal*>(value, "a dtype");
  DDP_CHECK(
      global->meaning == PickleMeaning::kDtype,
      "expected a dtype, found {}",
      global->name);
  return global->dtype;
}

void require_gradients(at::Tensor& tensor, bool required) {
  DDP_CHECK(
      !required || tensor.is_floating_point() || tensor.is_complex(),
      "a tensor of {} cannot require gradients",
      tensor.scalar_type());
  tensor.set_requires_grad(required);
}

at::Tensor view_of(
    const PickleStorage& storage,
    c10::ScalarType dtype,
    const Values& arguments) {
  const auto offset = expect_size(arguments[1], "a tensor's offset");
  const auto sizes = expect_sizes(arguments[2], "a tensor's size");
  const auto strides = expect_sizes(arguments[3], "a tensor's stride");
  DDP_CHECK(
      sizes.size() == strides.size(),
      "a tensor has sizes {} and strides {}, expected as many strides as "
      "sizes",
      at::IntArrayRef(sizes),
      at::IntArrayRef(strides));
  const auto elements =
      static_cast<int64_t>(storage.storage.nbytes() / c10::elementSize(dtype));
  const auto last = reach(sizes, strides, offset);
  DDP_CHECK(
      last <= elements,
      "a tensor of sizes {} and strides {} at offset {} reaches element {} of "
      "a storage of {} elements",
      at::IntArrayRef(sizes),
      at::IntArrayRef(strides),
      offset,
      last,
      elements);
  auto tensor = at::empty({0}, dtype);
  tensor.set_(storage.storage, offset, sizes, strides);
  return tensor;
}

} // namespace

AllowedGlobals::AllowedGlobals(
    PickleArena& arena,
    LoadStorage load,
    bool strict)
    : arena_(arena), load_(std::move(load)), strict_(strict) {}

PickleValue AllowedGlobals::find_class(
    const std::string& module,
    const std::string& name) {
  if (const auto* known = find_global(module, name)) {
    return arena_.create(known);
  }
  DDP_CHECK(
      !strict_,
      "it refers to '{}.{}', which a state_dict does not need; nothing was "
      "executed. LoadOptions().strict(false) loads a module without such "
      "entries; or load the file with Python, if you trust it, and save only "
      "tensors, numbers, bools, strings, None, and lists, tuples and dicts of "
      "these",
      module,
      name);
  arena_.charge(module.size() + name.size());
  return arena_.create(PickleUnknown{module + "." + name});
}

PickleValue AllowedGlobals::reduce(
    const PickleValue& function,
    const PickleValue& arguments) {
  if (content_of<PickleUnknown>(function)) {
    return function;
  }
  const auto& global =
      *expect<const PickleGlobal*>(function, "a function to call");
  const auto& values = expect<PickleTuple>(arguments, "a tuple").items;
  try {
    switch (global.meaning) {
      case PickleMeaning::kOrderedDict:
        return make_dict(values);
      case PickleMeaning::kCounter:
        return make_counter(values);
      case PickleMeaning::kSize:
        check_count(values, 1, 1);
        expect<PickleTuple>(values[0], "a tuple");
        return values[0];
      case PickleMeaning::kTypedList: // the second is LibTorch's type tag
        check_count(values, 1, 2);
        return values[0];
      case PickleMeaning::kRebuildTensor:
      case PickleMeaning::kRebuildTensorV2:
      case PickleMeaning::kRebuildTensorV3:
        return make_tensor(global, values);
      case PickleMeaning::kRebuildParameter:
        return make_parameter(values);
      case PickleMeaning::kRebuildFromType:
        return make_from_type(values);
      default:
        DDP_THROW(Error, "this library does not support the function");
    }
  } catch (const c10::Error& error) {
    DDP_THROW(Error, "{}: {}", global.name, error.what_without_backtrace());
  }
}

PickleValue AllowedGlobals::new_object(
    const PickleValue& type,
    const PickleValue& arguments) {
  if (content_of<PickleUnknown>(type)) {
    return type;
  }
  const auto& global = *expect<const PickleGlobal*>(type, "a type");
  DDP_CHECK(
      global.meaning == PickleMeaning::kArchive,
      "it has an instance of the class '{}', which this library does not read",
      global.name);
  check_count(expect<PickleTuple>(arguments, "a tuple").items, 0, 0);
  PickleDict archive;
  archive.archive = true;
  return arena_.create(std::move(archive));
}

PickleValue AllowedGlobals::persistent_load(const PickleValue& id) {
  const auto& values =
      expect<PickleTuple>(id, "a tuple as a persistent id").items;
  DDP_CHECK(
      values.size() == 5,
      "a persistent id has {} values, expected 5",
      values.size());
  if (content_of<PickleUnknown>(values[1])) { // such as of a quantized tensor
    return values[1];
  }
  const auto& kind = expect<std::string>(values[0], "a persistent id's kind");
  DDP_CHECK(
      kind == "storage",
      "a persistent id has the kind '{}', expected 'storage'",
      kind);
  const auto& type =
      *expect<const PickleGlobal*>(values[1], "a storage's type");
  const auto& key = expect<std::string>(values[2], "a storage's key");
  expect<std::string>(values[3], "a storage's device");
  const auto count = expect_size(values[4], "a storage's size");
  const bool untyped = type.meaning == PickleMeaning::kUntypedStorageType;
  DDP_CHECK(
      untyped || type.meaning == PickleMeaning::kStorageType,
      "storage '{}' has the type {}, which is not a storage type",
      key,
      type.name);
  const auto dtype = untyped ? c10::kByte : type.dtype;
  uint64_t bytes = 0;
  DDP_CHECK(
      !__builtin_mul_overflow(
          static_cast<uint64_t>(count), c10::elementSize(dtype), &bytes),
      "storage '{}' has {} elements, whose size exceeds 64 bits",
      key,
      count);
  return arena_.create(PickleStorage{storage_of(key, bytes), dtype});
}

const at::Storage& AllowedGlobals::storage_of(
    const std::string& key,
    uint64_t bytes) {
  auto found = storages_.find(key);
  if (found == storages_.end()) {
    found = storages_.emplace(key, load_(key)).first;
  }
  DDP_CHECK(
      bytes <= found->second.nbytes(),
      "storage '{}' has {} bytes, expected at least {}",
      key,
      found->second.nbytes(),
      bytes);
  return found->second;
}

// Python 2 passes a list of pairs; Python 3 fills the dict afterwards.
PickleValue AllowedGlobals::make_dict(const Values& arguments) {
  check_count(arguments, 0, 1);
  PickleDict dict;
  if (!arguments.empty()) {
    for (const auto& item :
         expect<PickleList>(arguments[0], "a list of pairs").items) {
      const auto* list = content_of<PickleList>(item);
      const auto& pair = list != nullptr
          ? list->items
          : expect<PickleTuple>(item, "a pair").items;
      DDP_CHECK(
          pair.size() == 2, "a pair has {} values, expected 2", pair.size());
      arena_.charge(2 * sizeof(PickleValue));
      dict.items.insert(dict.items.end(), pair.begin(), pair.end());
    }
  }
  return arena_.create(std::move(dict));
}

PickleValue AllowedGlobals::make_counter(const Values& arguments) {
  check_count(arguments, 0, 1);
  PickleDict dict;
  if (!arguments.empty()) {
    dict = expect<PickleDict>(arguments[0], "a dict");
    arena_.charge(dict.items.size() * sizeof(PickleValue));
  }
  return arena_.create(std::move(dict));
}

// (storage, offset, size, stride, requires_grad, hooks, dtype, metadata): the
// first version has four of these arguments, and only the third version has a
// dtype.
PickleValue AllowedGlobals::make_tensor(
    const PickleGlobal& function,
    const Values& arguments) {
  const bool first = function.meaning == PickleMeaning::kRebuildTensor;
  const bool third = function.meaning == PickleMeaning::kRebuildTensorV3;
  const size_t count = first ? 4 : third ? 7 : 6;
  check_count(arguments, count, first ? count : count + 1);
  const auto& storage = expect<PickleStorage>(arguments[0], "a storage");
  const auto dtype = third ? expect_dtype(arguments[6]) : storage.dtype;
  arena_.charge(kTensorBytes);
  auto tensor = view_of(storage, dtype, arguments);
  if (!first) {
    check_hooks(arguments[5]);
    if (arguments.size() > count) {
      set_metadata(tensor, arguments[count]);
    }
    require_gradients(tensor, expect<bool>(arguments[4], "requires_grad"));
  }
  return arena_.create(std::move(tensor));
}

// (data, requires_grad, hooks), and with state the Python attributes.
PickleValue AllowedGlobals::make_parameter(const Values& arguments) {
  check_count(arguments, 3, 4);
  arena_.charge(kTensorBytes);
  auto tensor = expect<at::Tensor>(arguments[0], "a tensor").detach();
  check_hooks(arguments[2]);
  require_gradients(tensor, expect<bool>(arguments[1], "requires_grad"));
  return arena_.create(std::move(tensor));
}

// (function, type, arguments, attributes) of a tensor with Python attributes.
PickleValue AllowedGlobals::make_from_type(const Values& arguments) {
  check_count(arguments, 4, 4);
  for (const auto i : {0, 1}) { // the type may be a subclass
    if (content_of<PickleUnknown>(arguments[i])) {
      return arguments[i];
    }
  }
  const auto* function =
      expect<const PickleGlobal*>(arguments[0], "a function to call");
  const auto* type = expect<const PickleGlobal*>(arguments[1], "a type");
  DDP_CHECK(
      function->meaning != PickleMeaning::kRebuildFromType,
      "the function calls itself");
  DDP_CHECK(
      type->meaning == PickleMeaning::kTensorType,
      "the type {} is not a tensor type",
      type->name);
  return reduce(arguments[0], arguments[2]);
}

} // namespace ddp::detail
