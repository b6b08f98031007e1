#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <launcher/cli/options/option.h>
#include <launcher/sockets.h>

namespace ddp {

// What texts mean. What takes an OptionValue throws LaunchError (exit code 2)
// for a text that means nothing, naming the option or variable that it comes
// from.

[[noreturn]] void usage_error(const std::string& message);
[[noreturn]] void reject_value(
    const OptionValue& value,
    const std::string& expected);

/// What stores a value: `set<seconds_of, &LaunchOptions::grace>`.
template <auto value_of, auto... member>
void set(LaunchOptions& options, const OptionValue& value) {
  (options.*....*member) = value_of(value);
}

inline std::string text_of(const OptionValue& value) {
  return value.text;
}

/// Of a flag.
inline bool given(const OptionValue& /*value*/) {
  return true;
}

/// None if the text is not a whole number.
std::optional<int64_t> whole_number(const std::string& text);

/// "HOST", "HOST:N", "[::1]:N" or "::1", taken apart.
struct HostText {
  std::string host;
  std::string number; // with its colon; empty where there is none
};

/// None if there is a bracket in the wrong place.
std::optional<HostText> split_host(const std::string& text);

/// "HOST", "HOST:PORT", "[::1]:29400" or "::1"; without a port `default_port`.
/// Throws LaunchError (exit code 2) for other texts, and for addresses that no
/// one can connect to.
SocketAddress endpoint_of(const OptionValue& value, int default_port);

/// Refuses "", 0.0.0.0 and ::.
void check_host(const OptionValue& value, const std::string& host);

/// "29500-29600".
std::pair<int, int> port_range_of(const OptionValue& value);

/// A whole number from `least` to `most`.
int int_of(const OptionValue& value, int least, int most);

/// Seconds, with decimals where wanted.
std::chrono::milliseconds seconds_of(const OptionValue& value);

/// Ranks of a node at most: a slip of the hand should not fork until the
/// machine is full.
constexpr int kMaxLocalRanks = 65536;

/// How many ranks --nproc-per-node asks for: a number, or by the CPUs and GPUs
/// that ranks may use. `devices` is what CUDA_VISIBLE_DEVICES will be, none
/// where it is unset. Files of the system are looked up under `root`.
int rank_count(
    const OptionValue& value,
    const std::optional<std::string>& devices,
    const std::string& root = "/");

/// The job's secret: the first line of --token's file, without spaces around
/// it, which others than its owner may not read.
std::string token_of(const OptionValue& value);

/// "3", or "0:1,4-7:3" for some local ranks.
StreamChoice streams_of(const OptionValue& value);

/// "0,1,4-7".
std::set<int> ranks_of(const OptionValue& value);

/// Texts between commas; a double comma stands for a comma.
std::vector<std::string> texts_of(const OptionValue& value);

/// "NAME=VALUE".
std::pair<std::string, std::string> variable_of(const OptionValue& value);

Binding binding_of(const OptionValue& value);
OutputMode output_mode_of(const OptionValue& value);

/// "node0:8,node1,[fd00::2]:4".
std::vector<RemoteHost> hosts_in_list(const OptionValue& value);

/// A file with a host on each line, as "node0 slots=8" or "node0:8"; what
/// follows a # is a comment.
std::vector<RemoteHost> hosts_in_file(const OptionValue& value);

/// Checks what is said besides hosts, where there are some.
void resolve_hosts(const GivenOptions& given, const LaunchOptions& options);

} // namespace ddp
