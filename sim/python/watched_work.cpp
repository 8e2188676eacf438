#include "sim/python/watched_work.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <optional>
#include <thread>

namespace spillway::python {
namespace {

namespace py = pybind11;

constexpr std::chrono::milliseconds kWakeUp{100};

void serve_python(const Watch& watch, const py::object& on_progress) {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  if (on_progress.is_none()) return;
  const WorkProgress progress = watch.progress();
  on_progress(progress.done, progress.total, progress.fraction, progress.simulated_seconds, progress.failed,
              progress.running, progress.waiting);
}

}  // namespace

void do_watched(const std::function<void(Watch&)>& work, const py::object& on_progress) {
  Watch watch;
  serve_python(watch, on_progress);
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  std::exception_ptr failure;
  std::thread worker([&] {
    try {
      work(watch);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    over = true;
    ended.notify_one();
  });
  std::optional<py::error_already_set> raised;
  const auto serve = [&] {
    if (raised) return;
    try {
      serve_python(watch, on_progress);
    } catch (const py::error_already_set& error) {
      raised = error;
      watch.ask_to_stop();
    }
  };
  for (bool done = false; !done;) {
    {
      const py::gil_scoped_release released;
      std::unique_lock lock(mutex);
      done = ended.wait_for(lock, kWakeUp, [&] { return over; });
    }
    if (!done) serve();
  }
  {
    const py::gil_scoped_release released;
    worker.join();
  }
  if (!failure) serve();
  if (raised) throw py::error_already_set(*raised);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace spillway::python
