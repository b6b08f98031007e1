// The one program of ddprun's that speaks to an etcd: a process of its own, so
// that ddprun, which has secrets and starts in milliseconds, links no libcurl.
//
// ddprun-etcd JOB SILENCE_MS CERT KEY CACERT USER PASSWORD_FILE WORDS...
//   carries an agent's part of the shared log (see HelperOptions). What is not
//   wanted is empty.
//
// It lives until it is killed, or its agent dies.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include <curl/curl.h>

#include <launcher/etcd/etcd_log.h>
#include <launcher/rendezvous/log/log_helper.h>

int main(int argc, char** argv) {
  constexpr size_t kOwn = 7;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() <= kOwn) {
    std::fputs("ddprun-etcd is started by ddprun\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN); // a member that ends shall not end this
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const auto options = ddp::helper_options({words.begin() + kOwn, words.end()});
  ddp::EtcdLog log(
      words[0],
      {words[2], words[3], words[4], words[5], words[6]},
      options.endpoints,
      std::chrono::milliseconds(std::stoi(words[1])));
  ddp::run_log_helper(log, options);
}
