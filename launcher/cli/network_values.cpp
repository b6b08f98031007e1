#include <launcher/cli/network_values.h>

#include <algorithm>

#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

constexpr int kMostPort = 65535;

int port_of(const OptionValue& value, const std::string& text) {
  if (text.empty() || text.size() > 5 ||
      text.find_first_not_of("0123456789") != std::string::npos ||
      std::stoi(text) > kMostPort) {
    refuse_value(
        value,
        "HOST[:PORT] with a port from 0 to 65535 ([::1]:29400 for IPv6)");
  }
  return std::stoi(text);
}

} // namespace

std::optional<HostText> split_host(const std::string& text) {
  if (text.empty() || text[0] != '[') {
    const bool has_number = std::count(text.begin(), text.end(), ':') == 1;
    const size_t colon = has_number ? text.find(':') : text.size();
    return HostText{text.substr(0, colon), text.substr(colon)};
  }
  const size_t close = text.find(']');
  if (close == std::string::npos ||
      (close + 1 < text.size() && text[close + 1] != ':')) {
    return std::nullopt;
  }
  return HostText{text.substr(1, close - 1), text.substr(close + 1)};
}

SocketAddress endpoint_of(const OptionValue& value, int default_port) {
  if (value.text.find('/') != std::string::npos) {
    refuse_value(value, "HOST[:PORT], and no URL");
  }
  const auto parts = split_host(value.text);
  if (!parts) {
    refuse_value(value, "an IPv6 address as in [::1]:29400");
  }
  const std::string& port = parts->number;
  check_host(value, parts->host);
  return {
      parts->host,
      port.empty() ? default_port : port_of(value, port.substr(1))};
}

void check_host(const OptionValue& value, const std::string& host) {
  if (host.empty()) {
    refuse_value(value, "a host name or an address");
  }
  if (host == "0.0.0.0" || host == "::") {
    refuse_value(value, "an address that ranks can connect to");
  }
}

std::pair<int, int> port_range_of(const OptionValue& value) {
  const size_t dash = value.text.find('-');
  if (dash == std::string::npos) {
    refuse_value(value, "A-B, the first and the last port");
  }
  const auto bound = [&](const std::string& text) {
    return static_cast<int>(integer_of({value.source, text}, 1, kMostPort));
  };
  const std::pair<int, int> range{
      bound(value.text.substr(0, dash)), bound(value.text.substr(dash + 1))};
  if (range.first > range.second) {
    refuse_value(value, "A-B with A not above B");
  }
  return range;
}

std::string describe_endpoint(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

} // namespace ddp
