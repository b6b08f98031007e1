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

// Parsing of values. A function that takes an OptionValue throws LaunchError
// (exit code 2) for an invalid text; the message names the option or variable.

[[noreturn]] void usage_error(const std::string& message);
[[noreturn]] void reject_value(
    const OptionValue& value,
    const std::string& expected);

/// Stores a value: `set<seconds_of, &LaunchOptions::grace>`.
template <auto value_of, auto... member>
void set(LaunchOptions& options, const OptionValue& value) {
  (options.*....*member) = value_of(value);
}

inline std::string text_of(const OptionValue& value) {
  return value.text;
}

/// The value of a flag.
inline bool given(const OptionValue& /*value*/) {
  return true;
}

/// The number; none if the text is not a whole number.
std::optional<int64_t> whole_number(const std::string& text);

/// The parts of "HOST", "HOST:N", "[::1]:N" or "::1".
struct HostText {
  std::string host;
  std::string number; // with its colon; may be empty
};

/// None if a bracket is misplaced.
std::optional<HostText> split_host(const std::string& text);

/// "HOST", "HOST:PORT", "[::1]:29400" or "::1"; `default_port` if there is no
/// port. Throws LaunchError (exit code 2) for other text, and for addresses to
/// which no connection is possible.
SocketAddress endpoint_of(const OptionValue& value, int default_port);

/// Rejects "", 0.0.0.0 and ::.
void check_host(const OptionValue& value, const std::string& host);

/// "29500-29600".
std::pair<int, int> port_range_of(const OptionValue& value);

/// A whole number from `least` to `most`.
int int_of(const OptionValue& value, int least, int most);

/// Seconds, possibly with decimals.
std::chrono::milliseconds seconds_of(const OptionValue& value);

/// The number of ranks of --nproc-per-node: a number, or the number of CPUs or
/// GPUs that ranks may use. `devices` is the ranks' CUDA_VISIBLE_DEVICES, none
/// if unset. Reads system files under `root`.
int rank_count(
    const OptionValue& value,
    const std::optional<std::string>& devices,
    const std::string& root = "/");

/// The job's secret: the first line of --token's file, without surrounding
/// spaces. Only the file's owner may have read permission.
std::string token_of(const OptionValue& value);

/// "3" for all local ranks, or "0:1,4-7:3" for some.
StreamChoice streams_of(const OptionValue& value);

/// "0,1,4-7".
std::set<int> ranks_of(const OptionValue& value);

/// Texts separated by commas; a double comma is a literal comma.
std::vector<std::string> texts_of(const OptionValue& value);

/// "NAME=VALUE".
std::pair<std::string, std::string> variable_of(const OptionValue& value);

Binding binding_of(const OptionValue& value);
OutputMode output_mode_of(const OptionValue& value);

/// "node0:8,node1,[fd00::2]:4".
std::vector<RemoteHost> hosts_in_list(const OptionValue& value);

/// The hosts in a file, one per line, as "node0 slots=8" or "node0:8", or with
/// a line "node0" for each rank; a # starts a comment.
std::vector<RemoteHost> hosts_in_file(const OptionValue& value);

/// Checks the options of a launch with --hosts or --hostfile, one of which must
/// be given. Throws LaunchError (exit code 2) if both are given, if another
/// option conflicts with them, or if localhost is among other hosts.
void resolve_hosts(const GivenOptions& given, const LaunchOptions& options);

} // namespace ddp
