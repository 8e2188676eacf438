#include "hwmodels/calibration/calibration_task.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace spillway::hwmodels {

std::string CalibrationTask::model_name() const {
  return layer_model().empty() ? std::string() : load_llm(layer_model()).file.name;
}

void CalibrationTask::begin(Op op) const {
  if (progress_) progress_(op_name(op));
}

void CalibrationTask::refuse_few(Op op, std::size_t rows, std::size_t fewest, const RowPlace& first) const {
  throw DataError(fmt::format("{} rows of {} are too few to fit: at least {} are required", rows, op_name(op), fewest),
                  place_text(in_, first), "measure more shapes, or leave the file out");
}

std::vector<Problem> CalibrationTask::with_files(std::vector<Problem> problems, const std::set<std::string>& files) {
  for (Problem& problem : problems) problem.where = fmt::format("{}: {}", fmt::join(files, ", "), problem.where);
  return problems;
}

}  // namespace spillway::hwmodels
