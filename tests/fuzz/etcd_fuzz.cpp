// An etcd's answers, separated by null bytes: a letter for the HTTP status,
// then the body.
#define main helper_main
#include <launcher/etcd/main.cpp> // NOLINT(bugprone-suspicious-include)
#undef main

#include <cstdarg>
#include <ctime>

static thread_local std::istringstream* answers;
static curl_write_callback write_to;
static void* target;
static long status;

// Replacements of libcurl's functions, with types that their headers lack:
// nothing may be thrown through libcurl.
CURLcode set_option(CURL*, int option, ...) noexcept
    __asm__("curl_easy_setopt");
CURLcode perform(CURL*) noexcept __asm__("curl_easy_perform");
CURLcode get_info(CURL*, int info, ...) noexcept __asm__("curl_easy_getinfo");

CURLcode set_option(CURL*, int option, ...) noexcept {
  va_list value;
  va_start(value, option);
  if (option == CURLOPT_WRITEFUNCTION) {
    write_to = va_arg(value, curl_write_callback);
  } else if (option == CURLOPT_WRITEDATA) {
    target = va_arg(value, void*);
  }
  va_end(value);
  return CURLE_OK;
}

CURLcode perform(CURL*) noexcept {
  std::string text;
  std::getline(*answers, text, '\0');
  const char first = text.empty() ? 'e' : text[0];
  status = first == 'u' ? 401 : first == 'n' ? 503 : first == 'e' ? 400 : 200;
  const auto size = text.size() - (text.empty() ? 0 : 1);
  const auto half = size / 2; // bodies come in parts
  const auto* body = text.data() + text.size() - size;
  return write_to(const_cast<char*>(body), 1, half, target) == half &&
          write_to(const_cast<char*>(body) + half, 1, size - half, target) ==
              size - half
      ? first == 'c' ? CURLE_RECV_ERROR : CURLE_OK
      : CURLE_WRITE_ERROR;
}

CURLcode get_info(CURL*, int info, ...) noexcept {
  va_list value;
  va_start(value, info);
  *va_arg(value, long*) = status;
  va_end(value);
  return CURLE_OK;
}

// The pauses before requests, in which the end of the answers ends all loops.
extern "C" int nanosleep(const timespec* time, timespec* left) {
  if (!answers) { // a thread of libFuzzer
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left);
  }
  return *answers ? 0 : throw std::runtime_error("no more answers");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream input({reinterpret_cast<const char*>(data), size});
  answers = &input;
  ddp::NodeOptions nodes;
  nodes.etcd = {{"a", 1}, {"b", 2}};
  nodes.etcd_access.user = "user";
  nodes.etcd_access.password_file = "/proc/self/comm";
  ddp::EtcdLog log({"m", "job", nodes});
  for (const auto& part : std::vector<std::function<void()>>{
           [&] { log.connect(nodes.etcd[0], ""); },
           [&] { log.nonce(); },
           [&] { log.append("entry"); },
           [&] { log.beat("m", 1, {"other"}); },
           [&] { log.read([](const std::string&) {}); },
           [&] { log.leave(); }}) {
    try {
      part();
    } catch (const std::exception&) {
    }
  }
  answers = nullptr;
  return 0;
}
