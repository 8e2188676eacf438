// The JSON form of each kernel model: which fields it has, and what their values may be.
#pragma once

#include "hwmodels/fitted.hpp"
#include "hwmodels/fitted_json_fields.hpp"

namespace spillway::hwmodels {

// Write the model's fields, or read them and append a problem for each that is wrong.
void describe(FitWriter& io, const GemmModel& model);
void describe(FitReader& io, GemmModel& model);
void describe(FitWriter& io, const MoeModel& model);
void describe(FitReader& io, MoeModel& model);
void describe(FitWriter& io, const ExchangeModel& model);
void describe(FitReader& io, ExchangeModel& model);
void describe(FitWriter& io, const DecodeAttentionModel& model);
void describe(FitReader& io, DecodeAttentionModel& model);
void describe(FitWriter& io, const PrefillAttentionModel& model);
void describe(FitReader& io, PrefillAttentionModel& model);
void describe(FitWriter& io, const MixedAttentionModel& model);
void describe(FitReader& io, MixedAttentionModel& model);
void describe(FitWriter& io, const ElementwiseModel& model);
void describe(FitReader& io, ElementwiseModel& model);
void describe(FitWriter& io, const CpuAttentionModel& model);
void describe(FitReader& io, CpuAttentionModel& model);
void describe(FitWriter& io, const HostModel& model);
void describe(FitReader& io, HostModel& model);
void describe(FitWriter& io, const IterationModel& model);
void describe(FitReader& io, IterationModel& model);
void describe(FitWriter& io, const CopyModel& model);
void describe(FitReader& io, CopyModel& model);
void describe(FitWriter& io, const AllReduceModel& model);
void describe(FitReader& io, AllReduceModel& model);
void describe(FitWriter& io, const LayerTables& model);
void describe(FitReader& io, LayerTables& model);

}  // namespace spillway::hwmodels
