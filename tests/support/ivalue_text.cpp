#include <ATen/core/Dict.h>
#include <checkpoint/formats/pickle/pickle_globals.h>
#include <tests/support/ivalue_text.h>

#include <algorithm>
#include <stdexcept>

namespace ddp::test {
namespace {

std::string text_of_tensor(const at::Tensor& tensor) {
  const auto plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
  auto text = detail::python_dtype(tensor.scalar_type()) + " [";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i > 0 ? "," : "") + std::to_string(tensor.size(i));
  }
  return text + "] " + hex(plain.const_data_ptr(), plain.nbytes()) +
      (tensor.requires_grad() ? " grad" : "");
}

std::string text_of_float(double value) {
  std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
  std::reverse(bytes.begin(), bytes.end());
  return "float " + hex(bytes.data(), bytes.size());
}

std::string text_of_plain(const c10::IValue& value) {
  if (value.isTensor()) {
    return text_of_tensor(value.toTensor());
  }
  if (value.isNone()) {
    return "None";
  }
  if (value.isBool()) {
    return value.toBool() ? "True" : "False";
  }
  if (value.isInt()) {
    return "int " + std::to_string(value.toInt());
  }
  if (value.isDouble()) {
    return text_of_float(value.toDouble());
  }
  if (value.isString()) {
    const auto& text = value.toStringRef();
    return "str " + hex(text.data(), text.size());
  }
  throw std::invalid_argument("a value that is a " + value.tagKind());
}

template <typename Items>
std::string text_of_items(
    const std::string& kind,
    const Items& items,
    const std::string& where) {
  auto text = where + " " + kind + " " + std::to_string(items.size()) + "\n";
  size_t index = 0;
  for (const auto& item : items) {
    text += text_of(item, where + "/" + std::to_string(index++));
  }
  return text;
}

} // namespace

std::string text_of(const c10::IValue& value, const std::string& where) {
  if (value.isList()) {
    return text_of_items("list", value.toListRef(), where);
  }
  if (value.isTuple()) {
    return text_of_items("tuple", value.toTupleRef().elements(), where);
  }
  if (!value.isGenericDict()) {
    return where + " " + text_of_plain(value) + "\n";
  }
  const auto dict = value.toGenericDict();
  auto text = where + " dict " + std::to_string(dict.size()) + "\n";
  for (const auto& item : dict) {
    const auto& key = item.key();
    text += text_of(
        item.value(),
        where + "/" +
            (key.isInt() ? std::to_string(key.toInt()) : key.toStringRef()));
  }
  return text;
}

} // namespace ddp::test
