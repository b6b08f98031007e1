#include <checkpoint/command/json_value.h>
#include <checkpoint/formats/values.h>

#include <cmath>

namespace ddp::command {

Json json_of(const c10::IValue& value) {
  if (value.isBool()) {
    return value.toBool();
  }
  if (value.isInt()) {
    return value.toInt();
  }
  if (value.isDouble()) {
    const auto number = value.toDouble();
    if (std::isnan(number)) {
      return "nan";
    }
    return std::isfinite(number) ? Json(number)
                                 : Json(number > 0 ? "inf" : "-inf");
  }
  if (value.isString()) {
    return value.toStringRef();
  }
  if (value.isGenericDict()) { // empty, as it is a leaf
    return Json::object();
  }
  if (value.isList() || value.isTuple()) {
    auto array = Json::array();
    detail::for_each_item(value, [&](const auto& /*key*/, const auto& item) {
      array.push_back(json_of(item));
    });
    return array;
  }
  return nullptr;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace ddp::command
