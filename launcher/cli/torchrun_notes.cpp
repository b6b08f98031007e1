#include <launcher/cli/torchrun_notes.h>

#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

void note_signals(const OptionValue& value, LaunchOptions* options) {
  std::string passed_on;
  for (const std::string& name : texts_of(value)) {
    if (name != "SIGTERM" && name != "SIGINT" && name != "SIGHUP" &&
        name != "SIGQUIT") {
      passed_on += (passed_on.empty() ? "" : ", ") + name;
    }
  }
  if (!passed_on.empty()) {
    options->notes.push_back(
        value.source + ": " + passed_on +
        " is passed on to the ranks without ending the job");
  }
}

} // namespace

void note_torchrun_options(const GivenOptions& given, LaunchOptions* options) {
  const auto with = [&](const char* name, auto&& use) {
    const auto found = given.find(name);
    if (found != given.end() && !found->second.text.empty()) {
      use(found->second);
    }
  };
  with("event-log-handler", [&](const OptionValue& value) {
    if (value.text != "null") {
      options->notes.push_back(
          value.source + " " + value.text +
          " has no effect: no events are recorded; --report FILE tells how a "
          "job went");
    }
  });
  with("logs-specs", [&](const OptionValue& value) {
    options->notes.push_back(
        value.source + " " + value.text +
        " has no effect: it names a Python class");
  });
  with("signals-to-handle", [&](const OptionValue& value) {
    note_signals(value, options);
  });
}

} // namespace ddp
