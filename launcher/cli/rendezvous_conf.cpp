#include <launcher/cli/rendezvous_conf.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

// torchrun's, which mean nothing here.
const char* const kWithoutEffect[] = {
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout"};

// An etcd's, which are texts.
const std::pair<const char*, std::string EtcdAccess::*> kOfEtcd[] = {
    {"cert", &EtcdAccess::cert},
    {"key", &EtcdAccess::key},
    {"cacert", &EtcdAccess::cacert},
    {"user", &EtcdAccess::user},
    {"password_file", &EtcdAccess::password_file}};

std::vector<OptionValue> pairs_of(const OptionValue& value) {
  std::vector<OptionValue> pairs;
  for (const std::string& pair : texts_of(value)) {
    const size_t sign = pair.find('=');
    if (sign == 0 || sign == std::string::npos || sign + 1 == pair.size()) {
      refuse_value(value, "NAME=VALUE,NAME=VALUE,...");
    }
    pairs.push_back({pair.substr(0, sign), pair.substr(sign + 1)});
  }
  return pairs;
}

bool flag_of(const OptionValue& value) {
  std::string text = value.text;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return std::tolower(c);
  });
  if (text != "1" && text != "true" && text != "0" && text != "false") {
    refuse_value(value, "1, 0, true or false");
  }
  return text == "1" || text == "true";
}

} // namespace

RendezvousConf rendezvous_conf_of(const OptionValue& value) {
  RendezvousConf conf;
  for (const auto& [name, text] : pairs_of(value)) {
    const OptionValue each{value.source + " " + name, text};
    const auto of_etcd = std::find_if(
        std::begin(kOfEtcd), std::end(kOfEtcd), [name = name](auto& known) {
          return name == known.first;
        });
    if (of_etcd != std::end(kOfEtcd)) {
      conf.etcd_access.*(of_etcd->second) = text;
      continue;
    }
    if (name == "is_host") {
      conf.is_host = flag_of(each);
    } else if (name == "join_timeout" || name == "timeout") { // c10d's,
                                                              // static's
      conf.join_timeout = seconds_of(each);
    } else if (name == "last_call_timeout") {
      conf.last_call = seconds_of(each);
    } else if (name == "store_type") {
      if (text != "tcp") {
        refuse_value(each, "tcp");
      }
    } else if (
        std::find(std::begin(kWithoutEffect), std::end(kWithoutEffect), name) ==
        std::end(kWithoutEffect)) {
      conf.unknown.push_back(name);
    }
  }
  const EtcdAccess& access = conf.etcd_access;
  if (access.cert.empty() != access.key.empty() ||
      access.user.empty() != access.password_file.empty()) {
    refuse_value(
        value, "cert=... with key=..., user=... with password_file=...");
  }
  return conf;
}

void check_rendezvous_conf(const OptionValue& value) {
  pairs_of(value);
}

} // namespace ddp
