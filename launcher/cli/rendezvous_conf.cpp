#include <launcher/cli/rendezvous_conf.h>

#include <map>
#include <set>

#include <launcher/cli/options/option_values.h>

namespace ddp {
namespace {

// torchrun's, which mean nothing here.
const std::set<std::string> kWithoutEffect{
    "close_timeout",
    "heartbeat_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "read_timeout"};

bool flag_of(const OptionValue& value) {
  std::string text = value.text;
  text[0] = text[0] == 'T' ? 't' : text[0] == 'F' ? 'f' : text[0]; // Python's
  if (text != "1" && text != "true" && text != "0" && text != "false") {
    refuse_value(value, "1, 0, true or false");
  }
  return text == "1" || text == "true";
}

} // namespace

RendezvousConf rendezvous_conf_of(
    const OptionValue& value,
    std::vector<std::string>* notes) {
  RendezvousConf conf;
  EtcdAccess& access = conf.etcd_access;
  const std::map<std::string, std::string*> texts{
      {"cert", &access.cert},
      {"key", &access.key},
      {"cacert", &access.cacert},
      {"user", &access.user},
      {"password_file", &access.password_file}};
  for (const std::string& pair : texts_of(value)) {
    const size_t sign = pair.find('=');
    if (sign == 0 || sign == std::string::npos || sign + 1 == pair.size()) {
      refuse_value(value, "NAME=VALUE,NAME=VALUE,...");
    }
    const std::string name = pair.substr(0, sign);
    const OptionValue each{value.source + " " + name, pair.substr(sign + 1)};
    if (const auto text = texts.find(name); text != texts.end()) {
      *text->second = each.text;
    } else if (name == "is_host") {
      conf.is_host = flag_of(each);
    } else if (name == "join_timeout" || name == "timeout") { // of static
      conf.join_timeout = seconds_of(each);
    } else if (name == "last_call_timeout") {
      conf.last_call = seconds_of(each);
    } else if (name == "store_type") {
      if (each.text != "tcp") {
        refuse_value(each, "tcp");
      }
    } else if (kWithoutEffect.count(name) == 0) {
      notes->push_back(each.source + " has no effect: it is not known");
    }
  }
  if (access.cert.empty() != access.key.empty() ||
      access.user.empty() != access.password_file.empty()) {
    refuse_value(
        value, "cert=... with key=..., user=... with password_file=...");
  }
  return conf;
}

} // namespace ddp
