#include <ATen/core/Dict.h>
#include <c10/util/strides.h>
#include <checkpoint/formats/common/utf8.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/pickle/pickle_opcodes.h>
#include <checkpoint/formats/pickle/pickle_writer.h>
#include <checkpoint/formats/pickle/storage_plan.h>
#include <ddp/internal/check.h>
#include <ddp/support/plain_tensor.h>

#include <algorithm>
#include <limits>

namespace ddp::detail {
namespace {

using namespace pickle;

constexpr unsigned char kProtocol = 2;

class PickleWriter {
 public:
  explicit PickleWriter(const c10::IValue& value) : plan_(value) {
    put(kProto);
    put(kProtocol);
    write(value, "the value");
    put(kStop);
  }

  PickledValue take() {
    return {std::move(pickle_), plan_.take_storages()};
  }

 private:
  // `where` is for messages.
  void write(const c10::IValue& value, const std::string& where);
  void write_items(c10::ArrayRef<c10::IValue> items, const std::string& where);
  void write_dict(const c10::IValue& value, const std::string& where);
  void write_tensor(const at::Tensor& tensor, const std::string& where);
  void write_storage(
      size_t storage,
      c10::ScalarType dtype,
      uint64_t elements,
      uint64_t bytes);
  void write_int(int64_t value);
  void write_double(double value);
  void write_text(const std::string& text, const std::string& where);
  void write_sizes(at::IntArrayRef sizes);
  void write_global(const std::string& module, const std::string& name);

  void put(unsigned char byte) {
    pickle_.push_back(static_cast<char>(byte));
  }

  template <typename T>
  void put_number(T value) {
    pickle_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  StoragePlan plan_;
  std::string pickle_;
  std::map<std::string, unsigned char> globals_; // where the memo has them
};

void PickleWriter::write(const c10::IValue& value, const std::string& where) {
  if (value.isTensor()) {
    write_tensor(value.toTensor(), where);
  } else if (value.isNone()) {
    put(kNone);
  } else if (value.isBool()) {
    put(value.toBool() ? kNewTrue : kNewFalse);
  } else if (value.isInt()) {
    write_int(value.toInt());
  } else if (value.isDouble()) {
    write_double(value.toDouble());
  } else if (value.isString()) {
    write_text(value.toStringRef(), where);
  } else if (value.isList()) {
    put(kEmptyList);
    write_items(value.toListRef(), where);
    put(kAppends);
  } else if (value.isTuple()) {
    write_items(value.toTupleRef().elements(), where);
    put(kTuple);
  } else if (value.isGenericDict()) {
    write_dict(value, where);
  } else {
    DDP_THROW(
        TypeError,
        "{} is a {}; a file takes tensors, numbers, strings, none, lists, "
        "tuples and dicts",
        where,
        value.tagKind());
  }
}

void PickleWriter::write_items(
    c10::ArrayRef<c10::IValue> items,
    const std::string& where) {
  put(kMark);
  for (size_t i = 0; i < items.size(); ++i) {
    write(items[i], where + "[" + std::to_string(i) + "]");
  }
}

void PickleWriter::write_dict(
    const c10::IValue& value,
    const std::string& where) {
  put(kEmptyDict);
  put(kMark);
  for (const auto& item : value.toGenericDict()) {
    const auto& key = item.key();
    DDP_CHECK_TYPE(
        key.isString() || key.isInt(),
        "{} has a key that is a {}; a file takes strings and integers",
        where,
        key.tagKind());
    write(key, "a key of " + where);
    write(
        item.value(),
        where +
            (key.isInt() ? "[" + std::to_string(key.toInt()) + "]"
                         : "['" + key.toStringRef() + "']"));
  }
  put(kSetItems);
}

void check_tensor(const at::Tensor& tensor, const std::string& where) {
  check_readable(tensor, where);
  DDP_CHECK_TYPE(
      !python_dtype(tensor.scalar_type()).empty(),
      "{} is a tensor of dtype {}, which this library does not write; convert "
      "it first",
      where,
      tensor.scalar_type());
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad,
// hooks), and v3 with the dtype as well.
void PickleWriter::write_tensor(
    const at::Tensor& tensor,
    const std::string& where) {
  check_tensor(tensor, where);
  const auto dtype = tensor.scalar_type();
  const bool untyped = python_storage(dtype).empty();
  const auto place = plan_.place(tensor);
  const uint64_t bytes =
      place.whole ? tensor.storage().nbytes() : tensor.nbytes();
  write_global(
      "torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  put(kMark);
  write_storage(place.storage, dtype, bytes / tensor.element_size(), bytes);
  write_int(place.whole ? tensor.storage_offset() : 0);
  write_sizes(tensor.sizes());
  const auto contiguous = c10::contiguous_strides(tensor.sizes());
  write_sizes(place.whole ? tensor.strides() : at::IntArrayRef(contiguous));
  put(tensor.requires_grad() ? kNewTrue : kNewFalse);
  write_global("collections", "OrderedDict");
  put(kEmptyTuple);
  put(kReduce);
  if (untyped) {
    write_global("torch", python_dtype(dtype));
  }
  put(kTuple);
  put(kReduce);
}

// The persistent id ("storage", type, key, location, number of elements).
void PickleWriter::write_storage(
    size_t storage,
    c10::ScalarType dtype,
    uint64_t elements,
    uint64_t bytes) {
  const auto type = python_storage(dtype);
  put(kMark);
  write_text("storage", "");
  if (type.empty()) {
    write_global("torch.storage", "UntypedStorage");
  } else {
    write_global("torch", type);
  }
  write_text(std::to_string(storage), "");
  write_text("cpu", "");
  write_int(static_cast<int64_t>(type.empty() ? bytes : elements));
  put(kTuple);
  put(kBinPersId);
}

void PickleWriter::write_int(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    put(kBinInt);
    put_number(static_cast<int32_t>(value));
  } else {
    put(kLong1);
    put(sizeof(value));
    put_number(value);
  }
}

void PickleWriter::write_double(double value) {
  put(kBinFloat);
  put_number(value);
  std::reverse(pickle_.end() - sizeof(value), pickle_.end()); // big-endian
}

void PickleWriter::write_text(
    const std::string& text,
    const std::string& where) {
  DDP_CHECK_VALUE(is_utf8(text), "{} is text that is not UTF-8", where);
  DDP_CHECK_VALUE(
      text.size() <= std::numeric_limits<uint32_t>::max(),
      "{} is text of {} bytes, the format allows 2^32 - 1",
      where,
      text.size());
  put(kBinUnicode);
  put_number(static_cast<uint32_t>(text.size()));
  pickle_ += text;
}

void PickleWriter::write_sizes(at::IntArrayRef sizes) {
  put(kMark);
  for (const auto size : sizes) {
    write_int(size);
  }
  put(kTuple);
}

void PickleWriter::write_global(
    const std::string& module,
    const std::string& name) {
  const auto [found, fresh] = globals_.emplace(
      module + "." + name, static_cast<unsigned char>(globals_.size()));
  if (!fresh) {
    put(kBinGet);
    put(found->second);
    return;
  }
  put(kGlobal);
  pickle_ += module + "\n" + name + "\n";
  put(kBinPut);
  put(found->second);
}

} // namespace

PickledValue write_pickle(const c10::IValue& value) {
  return PickleWriter(value).take();
}

} // namespace ddp::detail
