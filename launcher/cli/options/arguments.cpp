#include <launcher/cli/options/arguments.h>

#include <cctype>
#include <optional>

#include <launcher/cli/options/option_names.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

// An option as written, without its value in the next argument.
struct WrittenOption {
  const CommandOption* option;
  std::string source;
  std::optional<std::string> value;
};

WrittenOption read_long(const std::string& argument) {
  const size_t sign = argument.find('=');
  WrittenOption written{
      &option_of_name(argument.substr(2, sign - 2)),
      argument.substr(0, sign),
      std::nullopt};
  if (sign != std::string::npos) {
    written.value = argument.substr(sign + 1);
  }
  return written;
}

WrittenOption read_short(const std::string& argument) {
  WrittenOption written{
      &option_of_letter(argument[1]), argument.substr(0, 2), std::nullopt};
  if (argument.size() > 2) {
    written.value = argument.substr(argument[2] == '=' ? 3 : 2);
  }
  return written;
}

bool is_option(const std::string& argument) {
  return argument.size() > 1 && argument[0] == '-';
}

// Whether this can follow an option as its value: a negative number can, and
// so can text such as "- ".
bool is_value(const std::string& argument) {
  return !is_option(argument) ||
      (argument[1] != '-' &&
       !std::isalpha(static_cast<unsigned char>(argument[1])));
}

} // namespace

Arguments split_arguments(const std::vector<std::string>& arguments) {
  Arguments result;
  size_t i = 0;
  while (i < arguments.size() && arguments[i] != "--" &&
         is_option(arguments[i])) {
    const std::string& argument = arguments[i++];
    WrittenOption written =
        argument[1] == '-' ? read_long(argument) : read_short(argument);
    if (written.option->value == nullptr && written.value) {
      usage_error(
          written.source + " takes no value, but has one in " + argument);
    }
    if (written.option->value != nullptr && !written.value) {
      if (i == arguments.size() || !is_value(arguments[i])) {
        usage_error(
            written.source + " needs a value: " + written.option->value);
      }
      written.value = arguments[i++];
    }
    result.options.emplace_back(
        written.option,
        OptionValue{written.source, written.value.value_or("")});
    if (written.option->answers) {
      return result;
    }
  }
  i += i < arguments.size() && arguments[i] == "--" ? 1 : 0;
  result.command.assign(
      arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return result;
}

} // namespace ddp
