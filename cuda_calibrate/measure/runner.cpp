#include "cuda_calibrate/measure/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "cuda_calibrate/measure/rows.hpp"

namespace spillway::calibrate {
namespace {

class Runner {
 public:
  Runner(const Plan& plan, Backend& backend, std::int64_t gpu, Document& document, const RunHooks& hooks)
      : plan_(plan), backend_(backend), gpu_(gpu), document_(document), hooks_(hooks) {}

  RunOutcome run() {
    SPILLWAY_CHECK(plan_.sections.size() == document_.sections.size(), "a document of another plan");
    for (std::size_t i = 0; i < plan_.sections.size(); ++i) {
      const Section& section = plan_.sections[i];
      SectionResult& result = document_.sections[i];
      if (result.status == SectionStatus::done) continue;
      left_ += section.estimated_seconds;
    }
    for (std::size_t i = 0; i < plan_.sections.size() && !ended_; ++i) {
      if (document_.sections[i].status != SectionStatus::done) measure(plan_.sections[i], document_.sections[i]);
    }
    if (outcome_.code == ExitCode::ok || outcome_.code == ExitCode::partial) {
      document_.provenance["finished"] = hooks_.utc();
      hooks_.save(document_);
    }
    return outcome_;
  }

 private:
  [[nodiscard]] bool stopped() const { return hooks_.stop->load(); }

  /// Empty also for a GPU that does not answer; the next measurement reports the error.
  std::optional<nlohmann::ordered_json> state() {
    try {
      return gpu_state(backend_.facts(), gpu_);
    } catch (const DeviceError&) {
      return std::nullopt;
    }
  }

  void measure(const Section& section, SectionResult& result) {
    if (stopped()) {
      end_run(ExitCode::interrupted);
      return;
    }
    if (!section.reason.empty()) {
      result.status = SectionStatus::skipped;
      result.reason = section.reason;
      report(section, result, 0, true);
      return;
    }
    const double begin = hooks_.clock();
    result.gpu_start = state();
    result.status = SectionStatus::done;
    measure_points(section, result, begin);
    result.seconds = hooks_.clock() - begin;
    result.gpu_end = state();
    if (result.status == SectionStatus::done && result.points_done == 0) {
      result.status = SectionStatus::skipped;
      result.reason =
          fmt::format("no point could be measured: {}", result.skipped.front().at("reason").get<std::string>());
    }
    if (result.status == SectionStatus::failed && !ended_) outcome_.code = ExitCode::partial;
    left_ -= section.estimated_seconds;
    expected_ += section.estimated_seconds;
    taken_ += result.seconds;
    report(section, result, static_cast<std::int64_t>(section.points.size()), true);
    hooks_.save(document_);
  }

  void measure_points(const Section& section, SectionResult& result, double begin) {
    for (std::size_t i = 0; i < section.points.size(); ++i) {
      const Point& point = section.points[i];
      if (hooks_.clock() - begin > section.most_seconds) {
        skip(result, point, fmt::format("the section's {:.0f} s were used up", section.most_seconds));
        continue;
      }
      report(section, result, static_cast<std::int64_t>(i), false);
      try {
        if (!measure_point(point, result)) {
          result.status = SectionStatus::interrupted;
          return end_run(ExitCode::interrupted);
        }
      } catch (const Unsupported& error) {
        skip(result, point, error.what());
      } catch (const OutOfMemory& error) {
        skip(result, point, error.what());
      } catch (const std::bad_alloc&) {
        skip(result, point, "the host has too little free memory");
      } catch (const DeviceError& error) {
        result.status = SectionStatus::failed;
        result.reason = error.what();
        if (error.sticky()) {
          outcome_.lost = error.what();
          end_run(ExitCode::data);
        }
        return;
      }
    }
  }

  /// Returns false when interrupted.
  bool measure_point(const Point& point, SectionResult& result) {
    if (stopped()) return false;
    const std::unique_ptr<Case> one = backend_.prepare(point);
    if (const auto* sustained = std::get_if<Sustained>(&point)) {
      const SustainedRun run = run_sustained(*one, backend_, *sustained, hooks_.clock, *hooks_.stop);
      if (run.interrupted) return false;
      add_sustained(result, point, run, one->kernel(), document_.with_raw);
    } else {
      const Timings timings =
          sample(*one, rows_of(point).size(), sampling_rule(plan_.level), hooks_.clock, *hooks_.stop);
      if (timings.interrupted) return false;
      add_measurements(result, point, timings, one->kernel(), document_.with_raw);
    }
    const std::string note = one->note();
    if (!note.empty() && std::find(result.notes.begin(), result.notes.end(), note) == result.notes.end()) {
      result.notes.push_back(note);
    }
    ++result.points_done;
    return true;
  }

  static void skip(SectionResult& result, const Point& point, const std::string& reason) {
    result.skipped.push_back({{"point", rows_of(point).front()}, {"reason", reason}});
  }

  void end_run(ExitCode code) {
    outcome_.code = code;
    ended_ = true;
  }

  void report(const Section& section, const SectionResult& result, std::int64_t point, bool ended) const {
    const double share =
        ended || section.points.empty() ? 0.0 : static_cast<double>(point) / static_cast<double>(section.points.size());
    // Before the first section ends, there is no ratio to scale by.
    const double scale = expected_ > 0.0 ? std::clamp(taken_ / expected_, 0.2, 5.0) : 1.0;
    hooks_.progress({&section, &result, point, ended, scale * (left_ - share * section.estimated_seconds)});
  }

  const Plan& plan_;
  Backend& backend_;
  std::int64_t gpu_;
  Document& document_;
  const RunHooks& hooks_;
  RunOutcome outcome_{};
  bool ended_ = false;
  double left_ = 0.0;      // estimated seconds of the remaining points
  double expected_ = 0.0;  // estimated seconds of the measured sections
  double taken_ = 0.0;     // their actual seconds
};

}  // namespace

RunOutcome run_plan(const Plan& plan, Backend& backend, std::int64_t gpu, Document& document, const RunHooks& hooks) {
  return Runner(plan, backend, gpu, document, hooks).run();
}

}  // namespace spillway::calibrate
