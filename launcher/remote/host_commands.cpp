#include <launcher/remote/host_commands.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <sstream>

#include <common/scheduler/rank_environment.h>
#include <launcher/cli/redaction.h>
#include <launcher/rendezvous/authentication.h>
#include <launcher/rendezvous/endpoint.h>

namespace ddp {
namespace {

using Words = std::vector<std::string>;

// Two jobs of one host should not use the same port. These ports are above
// Linux's ephemeral ports (32768 to 60999).
int drawn_port(const NodeOptions& nodes) {
  int first = 61440;
  int last = 65535;
  if (nodes.first_port > 0) { // other ports are taken from the first one on
    last = nodes.last_port;
    first = last - (last - nodes.first_port) / 2;
  }
  std::random_device random;
  return std::uniform_int_distribution<int>(first, last)(random);
}

bool is_given(const LaunchOptions& options, const std::string& name) {
  const auto& given = options.remote.given;
  return std::any_of(given.begin(), given.end(), [&](const auto& each) {
    return each.first == name;
  });
}

// The words that all hosts have in common.
Words shared_words(const LaunchOptions& options) {
  Words words = {
      "--token",
      "-",
      "--nnodes=" + std::to_string(options.remote.hosts.size())};
  if (!is_given(options, "rdzv-endpoint")) {
    words.push_back(
        "--rdzv-endpoint=" +
        describe_endpoint(
            options.remote.hosts[0].name, drawn_port(options.nodes)));
  }
  if (!is_given(options, "rdzv-id")) {
    words.push_back("--rdzv-id=" + random_hex(8));
  }
  return words;
}

Words words_of_host(
    const LaunchOptions& options,
    size_t index,
    const Words& shared,
    const std::string& ddprun) {
  const RemoteHost& host = options.remote.hosts[index];
  std::set<std::string> dropped = {
      "hosts", "hostfile", "rsh", "token", "dry-run"};
  Words words = {ddprun};
  words.insert(words.end(), shared.begin(), shared.end());
  words.push_back("--node-rank=" + std::to_string(index));
  if (host.ranks > 0) {
    words.push_back("--nproc-per-node=" + std::to_string(host.ranks));
    dropped.insert("nproc-per-node");
  }
  if (index > 0) { // hosts may share the folder
    dropped.insert("report");
  }
  for (const auto& [name, word] : options.remote.given) {
    if (dropped.count(name) == 0) {
      words.push_back(word);
    }
  }
  words.emplace_back("--");
  words.insert(words.end(), options.command.begin(), options.command.end());
  return words;
}

std::string as_line(const Words& words) {
  std::string line;
  for (const std::string& word : words) {
    line += (line.empty() ? "" : " ") + shell_word(word);
  }
  return line;
}

// `env`, since not every login shell accepts an assignment before a command.
Words by_remote_shell(
    const std::string& shell,
    const std::string& host,
    const Words& words) {
  std::istringstream stream(shell);
  Words result;
  for (std::string word; stream >> word;) {
    result.push_back(word);
  }
  result.push_back(host);
  result.push_back(
      "cd " + shell_word(std::filesystem::current_path()) + " && exec env " +
      kRemoteLauncherVariable + "=1 " + as_line(words));
  return result;
}

std::vector<HostCommand> commands(
    const LaunchOptions& options,
    Words (*shown)(const Words&)) {
  const std::string ddprun =
      std::filesystem::read_symlink("/proc/self/exe").string();
  const Words shared = shared_words(options);
  std::vector<HostCommand> result;
  for (size_t i = 0; i < options.remote.hosts.size(); ++i) {
    HostCommand command;
    command.host = options.remote.hosts[i].name;
    command.is_here = is_this_machine(command.host);
    command.words = shown(words_of_host(options, i, shared, ddprun));
    if (!command.is_here) {
      command.words =
          by_remote_shell(options.remote.shell, command.host, command.words);
    }
    result.push_back(std::move(command));
  }
  return result;
}

Words unchanged(const Words& words) {
  return words;
}

} // namespace

std::vector<HostCommand> host_commands(const LaunchOptions& options) {
  return commands(options, &unchanged);
}

std::string describe_commands(const LaunchOptions& options) {
  std::string text;
  for (const HostCommand& each : commands(options, &redacted_arguments)) {
    text += as_line(each.words) + "\n";
  }
  return text;
}

} // namespace ddp
