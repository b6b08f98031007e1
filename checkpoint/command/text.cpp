#include <c10/core/ScalarType.h>
#include <checkpoint/command/json_value.h>
#include <checkpoint/command/text.h>

#include <algorithm>

namespace ddp::command {
namespace {

bool is_control(const std::string& text, size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  const auto before = static_cast<unsigned char>(i > 0 ? text[i - 1] : 0);
  return byte < 0x20 || byte == 0x7F ||
      (before == 0xC2 && byte >= 0x80 && byte < 0xA0);
}

bool has_control(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_control(text, i)) {
      return true;
    }
  }
  return false;
}

std::string ascii(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

} // namespace

std::string counted(uint64_t number, const std::string& noun) {
  return grouped(number) + " " + noun + (number == 1 ? "" : "s");
}

std::string shape_text(const at::Tensor& tensor) {
  return c10::str(tensor.sizes());
}

std::string dtype_text(const at::Tensor& tensor) {
  return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

std::string printable(const std::string& text) {
  if (!has_control(text)) {
    return text;
  }
  const auto quoted = ascii(text);
  return quoted.substr(1, quoted.size() - 2);
}

std::string name_text(const std::string& name) {
  return name.empty() ? "(value)" : printable(name);
}

std::string value_text(const c10::IValue& value, size_t width) {
  const auto json = json_of(value);
  auto text = dump(json);
  if (has_control(text)) {
    text = ascii(json);
  } else if (value.isDouble() && json.is_string()) { // "inf"
    text = json.get<std::string>();
  }
  if (character_count(text) <= width) {
    return text;
  }
  const auto amount = value.isString()
      ? counted(value.toStringRef().size(), "byte")
      : counted(json.size(), "item");
  const auto end = "... (" + amount + ")";
  const auto room = width - std::min(width, end.size());
  size_t kept = 0;
  for (size_t columns = 0; kept < text.size(); ++kept) {
    columns += starts_character(text[kept]);
    if (columns > room) {
      break;
    }
  }
  return text.substr(0, kept) + end;
}

} // namespace ddp::command
