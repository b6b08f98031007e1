// Measures the time and the requests of a start of many nodes over an etcd.
// Run: etcd_scale NODES HOST PORT
#define main helper_main
#include <launcher/etcd/main.cpp> // NOLINT(bugprone-suspicious-include)
#undef main

#include <dlfcn.h>

#include <tests/launcher/scale/scale.h>

#undef curl_easy_perform
extern "C" CURLcode curl_easy_perform(CURL* handle) {
  static const auto real = reinterpret_cast<decltype(&curl_easy_perform)>(
      dlsym(RTLD_NEXT, "curl_easy_perform"));
  ++ddp::test::requests();
  return real(handle);
}

int main(int, char** argv) {
  ddp::test::allow_many();
  curl_global_init(CURL_GLOBAL_DEFAULT);
  ddp::NodeOptions options;
  options.etcd = {{argv[2], std::atoi(argv[3])}};
  options.node_timeout = std::chrono::minutes(5);
  ddp::test::ScaleJob(std::atoi(argv[1]), options, [&](int number) {
    const ddp::HelperOptions helper{std::to_string(number), "scale", options};
    auto log = std::make_unique<ddp::EtcdLog>(helper);
    log->connect(options.etcd[0], "127.0.0.1");
    return log;
  }).run();
}
