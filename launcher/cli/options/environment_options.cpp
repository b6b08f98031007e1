#include <launcher/cli/options/environment_options.h>

#include <cctype>

#include <launcher/cli/options/option_values.h>

namespace ddp {

std::string variable_name(const std::string& option_name) {
  std::string name = "PET_";
  for (const char letter : option_name) {
    name += letter == '-' ? '_' : static_cast<char>(std::toupper(letter));
  }
  return name;
}

std::optional<OptionValue> value_from_environment(
    const CommandOption& option,
    const EnvironmentLookup& lookup) {
  if (!option.from_environment) {
    return std::nullopt;
  }
  std::string name = variable_name(option.name);
  auto text = lookup(name.c_str());
  if (!text && option.alias != nullptr) {
    name = variable_name(option.alias);
    text = lookup(name.c_str());
  }
  if (!text) {
    return std::nullopt;
  }
  const OptionValue value{name, *text};
  if (option.value == nullptr) {
    if (*text != "0" && *text != "1") {
      refuse_value(value, "1 or 0");
    }
    return *text == "1" ? std::optional<OptionValue>(OptionValue{name, ""})
                        : std::nullopt;
  }
  return value;
}

} // namespace ddp
