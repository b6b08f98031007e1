#include <c10/util/strides.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <checkpoint/formats/pickle/pickle_writer.h>
#include <checkpoint/formats/pickle/storage_plan.h>
#include <checkpoint/formats/values.h>
#include <ddp/internal/check.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

#include <algorithm>
#include <limits>
#include <map>

namespace ddp::detail {
namespace {

using Op = torch::jit::PickleOpCode;

constexpr uint8_t kProtocol = 2;

class PickleWriter {
 public:
  explicit PickleWriter(const c10::IValue& value) : plan_(value) {
    put(Op::PROTO);
    put_number(kProtocol);
    write(value);
    put(Op::STOP);
  }

  PickledValue take() {
    return {std::move(pickle_), plan_.take_storages()};
  }

 private:
  void write(const c10::IValue& value);
  void write_items(const c10::IValue& value);
  void write_tensor(const at::Tensor& tensor);
  void write_storage(
      size_t storage,
      c10::ScalarType dtype,
      uint64_t elements,
      uint64_t bytes);
  void write_int(int64_t value);
  void write_double(double value);
  void write_text(const std::string& text);
  void write_sizes(at::IntArrayRef sizes);
  void write_global(const std::string& module, const std::string& name);

  void put(Op opcode) {
    pickle_.push_back(static_cast<char>(opcode));
  }

  template <typename T>
  void put_number(T value) {
    pickle_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  StoragePlan plan_;
  std::string pickle_;
  std::map<std::string, uint8_t> globals_; // where the memo has them
};

void PickleWriter::write(const c10::IValue& value) {
  if (value.isTensor()) {
    write_tensor(value.toTensor());
  } else if (value.isNone()) {
    put(Op::NONE);
  } else if (value.isBool()) {
    put(value.toBool() ? Op::NEWTRUE : Op::NEWFALSE);
  } else if (value.isInt()) {
    write_int(value.toInt());
  } else if (value.isDouble()) {
    write_double(value.toDouble());
  } else if (value.isString()) {
    write_text(value.toStringRef());
  } else {
    write_items(value);
  }
}

void PickleWriter::write_items(const c10::IValue& value) {
  if (!value.isTuple()) {
    put(value.isList() ? Op::EMPTY_LIST : Op::EMPTY_DICT);
  }
  put(Op::MARK);
  for_each_item(value, [&](const c10::IValue& key, const c10::IValue& item) {
    if (value.isGenericDict()) {
      write(key);
    }
    write(item);
  });
  put(value.isTuple()      ? Op::TUPLE
          : value.isList() ? Op::APPENDS
                           : Op::SETITEMS);
}

// torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad,
// hooks), and v3 with the dtype as well.
void PickleWriter::write_tensor(const at::Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  const bool untyped = python_storage(dtype).empty();
  const auto place = plan_.place(tensor);
  const uint64_t bytes =
      place.whole ? tensor.storage().nbytes() : tensor.nbytes();
  write_global(
      "torch._utils", untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  put(Op::MARK);
  write_storage(place.storage, dtype, bytes / tensor.element_size(), bytes);
  write_int(place.whole ? tensor.storage_offset() : 0);
  write_sizes(tensor.sizes());
  const auto contiguous = c10::contiguous_strides(tensor.sizes());
  write_sizes(place.whole ? tensor.strides() : at::IntArrayRef(contiguous));
  put(tensor.requires_grad() ? Op::NEWTRUE : Op::NEWFALSE);
  write_global("collections", "OrderedDict");
  put(Op::EMPTY_TUPLE);
  put(Op::REDUCE);
  if (untyped) {
    write_global("torch", python_dtype(dtype));
  }
  put(Op::TUPLE);
  put(Op::REDUCE);
}

// The persistent id ("storage", type, key, location, number of elements).
void PickleWriter::write_storage(
    size_t storage,
    c10::ScalarType dtype,
    uint64_t elements,
    uint64_t bytes) {
  const auto type = python_storage(dtype);
  put(Op::MARK);
  write_text("storage");
  if (type.empty()) {
    write_global("torch.storage", "UntypedStorage");
  } else {
    write_global("torch", type);
  }
  write_text(std::to_string(storage));
  write_text("cpu");
  write_int(static_cast<int64_t>(type.empty() ? bytes : elements));
  put(Op::TUPLE);
  put(Op::BINPERSID);
}

void PickleWriter::write_int(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() &&
      value <= std::numeric_limits<int32_t>::max()) {
    put(Op::BININT);
    put_number(static_cast<int32_t>(value));
  } else {
    put(Op::LONG1);
    put_number(static_cast<uint8_t>(sizeof(value)));
    put_number(value);
  }
}

void PickleWriter::write_double(double value) {
  put(Op::BINFLOAT);
  put_number(value);
  std::reverse(pickle_.end() - sizeof(value), pickle_.end()); // big-endian
}

void PickleWriter::write_text(const std::string& text) {
  DDP_CHECK_VALUE(
      text.size() <= std::numeric_limits<uint32_t>::max(),
      "it has a string of {} bytes, but the format allows 2^32 - 1",
      text.size());
  put(Op::BINUNICODE);
  put_number(static_cast<uint32_t>(text.size()));
  pickle_ += text;
}

void PickleWriter::write_sizes(at::IntArrayRef sizes) {
  put(Op::MARK);
  for (const auto size : sizes) {
    write_int(size);
  }
  put(Op::TUPLE);
}

void PickleWriter::write_global(
    const std::string& module,
    const std::string& name) {
  const auto [found, fresh] = globals_.emplace(
      module + "." + name, static_cast<uint8_t>(globals_.size()));
  if (!fresh) {
    put(Op::BINGET);
    put_number(found->second);
    return;
  }
  put(Op::GLOBAL);
  pickle_ += module + "\n" + name + "\n";
  put(Op::BINPUT);
  put_number(found->second);
}

} // namespace

PickledValue write_pickle(const c10::IValue& value) {
  return PickleWriter(value).take();
}

} // namespace ddp::detail
