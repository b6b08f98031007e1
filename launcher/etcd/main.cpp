// The one program of ddprun's that speaks to an etcd: a process of its own, so
// that ddprun, which has secrets and starts in milliseconds, links no libcurl.
//
// ddprun-etcd --rdzv-member OPTIONS
//   carries an agent's part of the shared log (see HelperOptions).
//
// It lives until it is killed, or its agent dies.
#include <csignal>
#include <cstdio>

#include <curl/curl.h>

#include <launcher/etcd/etcd_log.h>
#include <launcher/rendezvous/log/log_helper.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("ddprun-etcd is started by ddprun\n", stderr);
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN); // a member that ends shall not end this
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const auto options = ddp::helper_options(argv[2]);
  ddp::EtcdLog log(options);
  ddp::run_log_helper(log, options);
}
