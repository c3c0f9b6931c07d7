// What every compiled snippet carries besides its own code: how Python runs, times and counts it.
//
// The snippet's file defines torchbench_run: setup, then one loop over the statement, handed to a server. Setup and loop
// live as long as the server runs, so that many blocks can be timed on one setup, those of several snippets in turns.
#pragma once

#include <callgrind.h> // client requests: without effect outside valgrind

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <iostream>
#include <string>
#include <typeinfo>

#define TORCHBENCH_EXPORT extern "C" __attribute__((visibility("default")))

namespace torchbench {

// A type of its own: a bare `return` in the statement, which would end the timed loop, does not compile.
struct Calls {
  std::int64_t made;
};

using Loop = Calls (*)(void* closure, std::int64_t calls);
using Serve = void (*)(Loop loop, void* closure, void* context);

// No number converts to it: a `return` in setup, after which nothing would be timed, does not compile.
enum class Status : int { NotServed, Ok, Raised, LeftLoop };

struct Message {
  char* text;
  std::int64_t size;
};

template <class F>
Calls call(void* closure, std::int64_t calls) {
  return (*static_cast<F*>(closure))(calls);
}

template <class F>
void serve(F& loop, Serve server, void* context) {
  server(&call<F>, &loop, context);
}

inline Calls nothing(void*, std::int64_t calls) {
  std::int64_t made = 0;
  for (; made < calls; ++made) {
    asm volatile("" : "+r"(made));
  }
  return {made};
}

inline void tell(const Message& message, const std::string& text) noexcept {
  if (message.size > 0) {
    const auto length = std::min<std::size_t>(text.size(), static_cast<std::size_t>(message.size) - 1);
    std::memcpy(message.text, text.data(), length);
    message.text[length] = '\0';
  }
}

// To be called in a handler: says what the exception at hand says.
inline Status raised(const Message& message) noexcept {
  try {
    throw;
  } catch (const c10::Error& error) {
    tell(message, c10::demangle(typeid(error).name()) + ": " + error.what_without_backtrace());
  } catch (const std::exception& error) {
    tell(message, c10::demangle(typeid(error).name()) + ": " + error.what());
  } catch (...) {
    tell(message, "an exception that is no std::exception");
  }
  return Status::Raised;
}

inline std::int64_t wall_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

inline std::int64_t cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

inline void wait_for(int device) {
  if (device >= 0) {
    at::accelerator::synchronizeDevice(static_cast<c10::DeviceIndex>(device));
  }
}

// (wall, cpu) nanoseconds of so many calls; the device is waited for inside the clocks, none with -1.
inline Status timed(Loop loop, void* closure, std::int64_t calls, int device, std::int64_t* ns) {
  wait_for(device);
  const auto cpu = cpu_ns();
  const auto wall = wall_ns();
  const auto done = loop(closure, calls);
  wait_for(device);
  ns[0] = wall_ns() - wall;
  ns[1] = cpu_ns() - cpu;
  std::cout.flush(); // what is printed belongs to this block
  std::fflush(stdout);
  return done.made == calls ? Status::Ok : Status::LeftLoop;
}

struct Job {
  std::int64_t calls;
  std::int64_t warm;
  Status status;
};

inline void serve_count(Loop loop, void* closure, void* context) {
  auto& job = *static_cast<Job*>(context);
  CALLGRIND_TOGGLE_COLLECT;
  nothing(nullptr, job.warm);
  loop(closure, job.warm);
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT("warm"); // what other threads did until now too: they collect all the time
  CALLGRIND_TOGGLE_COLLECT;
  const auto done = loop(closure, job.calls);
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT("stmt");
  CALLGRIND_TOGGLE_COLLECT;
  nothing(nullptr, job.calls);
  CALLGRIND_TOGGLE_COLLECT;
  CALLGRIND_DUMP_STATS_AT("empty");
  job.status = done.made == job.calls ? Status::Ok : Status::LeftLoop;
}

} // namespace torchbench

// Defined by the snippet.
static torchbench::Status torchbench_run(torchbench::Serve server, void* context, torchbench::Message message) noexcept;

// Runs setup, hands the loop to `server`, and leaves the setup's scope when `server` returns.
TORCHBENCH_EXPORT torchbench::Status torchbench_open(torchbench::Serve server, void* context, char* text, std::int64_t size) noexcept {
  return torchbench_run(server, context, {text, size});
}

// One block, of a loop that is open; a null loop is the empty one.
TORCHBENCH_EXPORT torchbench::Status torchbench_block(
    torchbench::Loop loop,
    void* closure,
    std::int64_t calls,
    int device,
    std::int64_t* ns,
    char* text,
    std::int64_t size) noexcept {
  try {
    return torchbench::timed(loop != nullptr ? loop : &torchbench::nothing, closure, calls, device, ns);
  } catch (...) {
    return torchbench::raised({text, size});
  }
}

// Setup, `warm` calls, then the statement and the empty loop, each followed by a dump of callgrind's counts. Outside
// valgrind it merely makes the calls: so a new snippet is tried out.
TORCHBENCH_EXPORT torchbench::Status torchbench_count(std::int64_t calls, std::int64_t warm, char* text, std::int64_t size) noexcept {
  torchbench::Job job{calls, warm, torchbench::Status::Ok};
  const auto status = torchbench_run(&torchbench::serve_count, &job, {text, size});
  return status != torchbench::Status::Ok ? status : job.status;
}

TORCHBENCH_EXPORT void torchbench_set_threads(int threads) {
  at::set_num_threads(threads);
}
