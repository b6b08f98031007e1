#include <launcher/cli/options/option_table.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>

#include <common/text.h>
#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kIndent = 26;

// Wraps the text in lines of at most `width` bytes, unless a word is longer.
std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string paragraph(const std::string& text) {
  std::string result;
  for (const std::string& line : wrap(text, kColumns)) {
    result += line + "\n";
  }
  return result;
}

std::string heading_line(const CommandOption& option) {
  std::string line = "  ";
  for (const std::string& form : option.forms) {
    line += (line.size() > 2 ? ", " : "") + form;
  }
  return option.value.empty() ? line : line + " " + option.value;
}

std::string entry(const CommandOption& option) {
  std::string text = heading_line(option);
  bool starts_line = text.size() + 2 > kIndent;
  text += starts_line ? "\n" : std::string(kIndent - text.size(), ' ');
  for (const std::string& line : wrap(option.help, kColumns - kIndent)) {
    text += (starts_line ? std::string(kIndent, ' ') : "") + line + "\n";
    starts_line = true;
  }
  return text;
}

} // namespace

extern const char* const kOptionRows; // see CMakeLists.txt

namespace {

using Options = LaunchOptions;
using Output = OutputOptions;
using Value = OptionValue;

struct StoredOption {
  const char* name;
  void (*store)(Options&, const Value&);
};

void note_no_effect(Options& options, const Value& value) {
  if (!value.text.empty() && value.text != "null") {
    options.notes.push_back(value.source + " " + value.text + " has no effect");
  }
}

const StoredOption kStored[] = {
    {"master-addr",
     [](Options& options, const Value& value) {
       check_host(value, value.text);
       options.master_addr = value.text;
     }},
    {"master-port",
     [](Options& options, const Value& value) {
       options.master_port = int_of(value, 0, 65535);
     }},
    {"role", &set<text_of, &Options::role>},
    {"standalone", &set<given, &Options::standalone>},
    {"rdzv-id", &set<text_of, &Options::run_id>},
    {"bind", &set<text_of, &Options::nodes, &NodeOptions::bind>},
    {"local-addr", &set<text_of, &Options::nodes, &NodeOptions::local_address>},
    {"port-range",
     [](Options& options, const Value& value) {
       const auto [first, last] = port_range_of(value);
       options.nodes.first_port = first;
       options.nodes.last_port = last;
     }},
    {"node-timeout",
     [](Options& options, const Value& value) {
       options.nodes.node_timeout = seconds_of(value);
       if (options.nodes.node_timeout < std::chrono::seconds(1)) {
         reject_value(value, "a number of seconds, at least 1");
       }
     }},
    {"last-call", &set<seconds_of, &Options::nodes, &NodeOptions::last_call>},
    {"join-timeout",
     &set<seconds_of, &Options::nodes, &NodeOptions::join_timeout>},
    {"hosts", &set<hosts_in_list, &Options::remote, &RemoteOptions::hosts>},
    {"hostfile", &set<hosts_in_file, &Options::remote, &RemoteOptions::hosts>},
    {"rsh",
     [](Options& options, const Value& value) {
       if (value.text.find_first_not_of(' ') == std::string::npos) {
         reject_value(value, "a command");
       }
       options.remote.shell = value.text;
     }},
    {"env",
     [](Options& options, const Value& value) {
       options.env.push_back(variable_of(value));
     }},
    {"numa-binding", &set<binding_of, &Options::binding>},
    {"virtual-local-rank", &set<given, &Options::virtual_local_rank>},
    {"max-restarts",
     [](Options& options, const Value& value) {
       options.max_restarts = int_of(value, 0, std::numeric_limits<int>::max());
     }},
    {"grace", &set<seconds_of, &Options::grace>},
    {"hang-timeout", &set<seconds_of, &Options::hang_timeout>},
    {"report",
     [](Options& options, const Value& value) {
       if (value.text.empty()) {
         reject_value(value, "a file");
       }
       options.report = value.text;
     }},
    {"redirects", &set<streams_of, &Options::output, &Output::redirects>},
    {"tee", &set<streams_of, &Options::output, &Output::tee>},
    {"log-dir", &set<text_of, &Options::output, &Output::log_dir>},
    {"output", &set<output_mode_of, &Options::output, &Output::mode>},
    {"log-line-prefix", &set<text_of, &Options::output, &Output::line_prefix>},
    {"local-ranks-filter",
     &set<ranks_of, &Options::output, &Output::shown_ranks>},
    {"duplicate-stdout-filters",
     &set<texts_of, &Options::output, &Output::stdout_filters>},
    {"duplicate-stderr-filters",
     &set<texts_of, &Options::output, &Output::stderr_filters>},
    {"event-log-handler", note_no_effect},
    {"logs-specs", note_no_effect},
    {"signals-to-handle", note_no_effect},
    {"dry-run", &set<given, &Options::dry_run>},
};

std::string without_markup(std::string text) {
  const auto is_markup = [](char c) { return c == '`' || c == '\\'; };
  text.erase(std::remove_if(text.begin(), text.end(), is_markup), text.end());
  return text;
}

// "`-t, --tee STREAMS` | Write ..."
CommandOption option_in(const std::string& row, const std::string& group) {
  CommandOption option;
  option.group = group;
  const size_t end = row.find("` | ");
  std::istringstream words(without_markup(row.substr(0, end)));
  for (std::string word; words >> word;) {
    if (word[0] != '-') {
      option.value = word;
    } else {
      option.forms.push_back(word.substr(0, word.find(',')));
    }
  }
  option.help = without_markup(row.substr(end + 4));
  for (const StoredOption& each : kStored) {
    if (option.name() == each.name) {
      option.store = each.store;
    }
  }
  return option;
}

std::vector<CommandOption> read_table() {
  constexpr char heading_end[] = " | |";
  std::vector<CommandOption> options;
  std::string group;
  for (const auto& row : split_lines(kOptionRows)) {
    const size_t heading = row.rfind(heading_end);
    if (row.rfind("| `", 0) == 0) {
      options.push_back(option_in(row.substr(2, row.size() - 4), group));
    } else if (heading != std::string::npos) {
      group = row.substr(2, heading - 2);
    }
  }
  return options;
}

} // namespace

size_t stored_options() {
  return std::size(kStored);
}

const std::vector<CommandOption>& option_table() {
  static const std::vector<CommandOption> table = read_table();
  return table;
}

std::string help_text() {
  std::string text = "Usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]\n\n" +
      paragraph("Runs several ranks of a program on one or more machines, and "
                "ends all of them if one fails. The options are those of "
                "torchrun and a few more; they must precede the program.");
  const CommandOption* previous = nullptr;
  for (const CommandOption& option : option_table()) {
    if (previous == nullptr || previous->group != option.group) {
      text += "\n" + option.group + ":\n";
    }
    text += entry(option);
    previous = &option;
  }
  return text + "\n" +
      paragraph(
             "Underscores may replace dashes, and unique prefixes of names are "
             "accepted. Environment variables such as PET_NPROC_PER_NODE set "
             "options (but neither --env nor --hosts nor --hostfile) that are "
             "not on the command line.");
}

} // namespace ddp
