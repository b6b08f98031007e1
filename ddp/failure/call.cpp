#include <ddp/failure/call.h>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <functional>

namespace ddp::debug {
namespace {

// The room for tensors in a record.
constexpr size_t kMostText = 200;

/// "float32", or "cuda float32" on a GPU.
std::string dtype_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return "undefined";
  }
  const auto dtype = c10::getDtypeNames(tensor.scalar_type()).first;
  return tensor.is_cpu()
      ? dtype
      : c10::str(at::Device(tensor.device().type()), " ", dtype);
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return dtype_of(tensor);
  }
  auto text = c10::str(dtype_of(tensor), " ", tensor.sizes());
  if (tensor.layout() != at::kStrided) {
    text += c10::str(" ", tensor.layout());
  }
  return text;
}

/// Counts equal tensors in succession: "3 x float32 [4]".
std::string describe(at::TensorList tensors) {
  std::string text;
  for (size_t i = 0; i < tensors.size();) {
    const auto one = describe(tensors[i]);
    size_t end = i + 1;
    while (end < tensors.size() && describe(tensors[end]) == one) {
      ++end;
    }
    text += text.empty() ? "" : ", ";
    text += end - i > 1 ? c10::str(end - i, " x ", one) : one;
    i = end;
  }
  if (text.size() > kMostText) { // must differ if the rest does
    const auto hash = std::hash<std::string>()(text);
    text = c10::str(text.substr(0, kMostText - 30), "... #", hash);
  }
  return text;
}

int64_t bytes_of(at::TensorList tensors) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.defined() && tensor.layout() == at::kStrided) {
      bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }
  return bytes;
}

} // namespace

std::string Call::text() const {
  auto text = std::string(operation);
  text += arguments.empty() ? "" : "(" + arguments + ")";
  return text + (tensors.empty() ? "" : " of " + tensors);
}

std::string Call::signature() const {
  return c10::str(operation, "(", arguments, ")", alike ? tensors : "");
}

Call call_of(
    const char* operation,
    at::TensorList tensors,
    std::string arguments) {
  return {
      operation,
      std::move(arguments),
      describe(tensors),
      /*alike=*/true,
      bytes_of(tensors)};
}

Call uneven_call_of(
    const char* operation,
    at::TensorList tensors,
    const std::string& arguments) {
  auto call = call_of(operation, tensors, arguments);
  call.alike = false;
  if (!tensors.empty()) {
    call.arguments += (arguments.empty() ? "" : ", ") + dtype_of(tensors[0]);
  }
  return call;
}

} // namespace ddp::debug
