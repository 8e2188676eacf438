// Results as one HTML page: charts with tables beneath, drawn by Chart.js in the page. It needs no network.
#pragma once

#include <string>
#include <vector>

namespace spillway {

/// A result as its command writes it in JSON: of run, sweep, compare, search, advise, plan, reproduce or
/// validate.
struct PageResult {
  std::string name;         // as the user named it: a file, or the command
  std::string json;         // the result
  std::string charts = {};  // of a run: charts.json, distributions and time series; empty: none
};

/// The page. Long lists are cut to what a page can show: 2,000 points of a chart. Throws DataError for each result that
/// is none, that another version has written, or that has nothing in it.
[[nodiscard]] std::string to_html(const std::vector<PageResult>& results);

}  // namespace spillway
