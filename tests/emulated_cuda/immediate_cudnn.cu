#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "cuda_calibrate/cuda/attention_reference.hpp"
#include "cuda_calibrate/cuda/cudnn_library.hpp"
#include "tests/emulated_cuda/immediate_cuda.hpp"
#include "tests/emulated_cuda/immediate_cudnn.hpp"

namespace spillway::emulated {
namespace {

void need(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t count;
  std::vector<std::byte> values;
};
struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::int64_t engine = 0;            // of a configuration filled in by the heuristic
  const Descriptor* graph = nullptr;  // graph of the configuration
  std::map<cudnnBackendAttributeName_t, Attribute> attributes{};

  [[nodiscard]] bool has(cudnnBackendAttributeName_t name) const { return attributes.contains(name); }
  template <typename Value>
  [[nodiscard]] std::vector<Value> all(cudnnBackendAttributeName_t name) const {
    need(has(name), "an attribute that is needed was not set");
    const Attribute& one = attributes.at(name);
    std::vector<Value> values(static_cast<std::size_t>(one.count));
    need(one.values.size() == std::span(values).size_bytes(), "an attribute of another width");
    std::memcpy(values.data(), one.values.data(), one.values.size());
    return values;
  }
  template <typename Value>
  [[nodiscard]] Value one(cudnnBackendAttributeName_t name) const {
    return all<Value>(name).at(0);
  }
  [[nodiscard]] const Descriptor& other(cudnnBackendAttributeName_t name) const;
};

std::set<Descriptor*>& living() {
  static std::set<Descriptor*> all;
  return all;
}
Descriptor& known(cudnnBackendDescriptor_t handle) {
  auto* descriptor = static_cast<Descriptor*>(handle);
  need(living().contains(descriptor), "a descriptor that does not live");
  return *descriptor;
}

const Descriptor& Descriptor::other(cudnnBackendAttributeName_t name) const { return known(one<Descriptor*>(name)); }

/// Attribute names of each descriptor, with their types: cudnn_graph.h.
const std::map<cudnnBackendDescriptorType_t, std::map<cudnnBackendAttributeName_t, cudnnBackendAttributeType_t>>&
known_attributes() {
  static const std::map<cudnnBackendDescriptorType_t,
                        std::map<cudnnBackendAttributeName_t, cudnnBackendAttributeType_t>>
      kKnown{{CUDNN_BACKEND_TENSOR_DESCRIPTOR,
              {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
               {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
               {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64},
               {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64},
               {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
               {CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN}}},
             {CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR}}},
             {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
              {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
               {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR}}},
             {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
              {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR},
               {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE}}},
             {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
             {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
              {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE},
               {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR}}},
             {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
              {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64},
               {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR},
               {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR}}}};
  return kKnown;
}

std::size_t width_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
      return sizeof(std::int64_t);
    case CUDNN_TYPE_DATA_TYPE:
      return sizeof(cudnnDataType_t);
    case CUDNN_TYPE_HEUR_MODE:
      return sizeof(cudnnBackendHeurMode_t);
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    default:
      return sizeof(void*);
  }
}

constexpr std::size_t kVersion = 91900;
int handle_is_this = 0;
cudaStream_t of_handle = nullptr;
const auto kHandle = reinterpret_cast<cudnnHandle_t>(&handle_is_this);

std::size_t version() { return kVersion; }
const char* error_string(cudnnStatus_t status) {
  return status == CUDNN_STATUS_NOT_INITIALIZED ? "CUDNN_STATUS_NOT_INITIALIZED" : "CUDNN_STATUS_NOT_SUPPORTED";
}
void last_error_string(char* message, std::size_t size) { std::strncpy(message, "as a test says", size); }
cudnnStatus_t create(cudnnHandle_t* handle) {
  if (!cudnn().handles) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = kHandle;
  ++machine().living;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t handle) {
  need(handle == kHandle, "another handle");
  --machine().living;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  need(handle == kHandle, "another handle");
  of_handle = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  need(known_attributes().contains(type), "a descriptor of no use here");
  auto* made = new Descriptor{type};
  living().insert(made);
  ++machine().living;
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  const std::unique_ptr<Descriptor> owned(&known(descriptor));
  living().erase(owned.get());
  --machine().living;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  Descriptor& descriptor = known(handle);
  need(!descriptor.finalized, "an attribute is set after its descriptor was finalised");
  const auto& names = known_attributes().at(descriptor.type);
  need(names.contains(name), "the descriptor has no such attribute");
  need(names.at(name) == type, "the attribute has another type");
  need(count > 0, "an attribute without values");
  const auto* bytes = static_cast<const std::byte*>(values);
  descriptor.attributes[name] = {type, count, {bytes, bytes + static_cast<std::size_t>(count) * width_of(type)}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    // The heuristic finalises the configurations that it fills in.
    for (Descriptor* other : descriptor.all<Descriptor*>(name)) {
      need(known(other).finalized, "a descriptor is used before it was finalised");
    }
  }
  if (type == CUDNN_TYPE_HANDLE) need(descriptor.one<cudnnHandle_t>(name) == kHandle, "another handle");
  return CUDNN_STATUS_SUCCESS;
}

const Descriptor& operation_of(const Descriptor& graph) { return graph.other(CUDNN_ATTR_OPERATIONGRAPH_OPS); }
bool with_pages(const Descriptor& operation) { return operation.has(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC); }

/// Checks that all required attributes are set and that the tensors fit together.
void check_complete(const Descriptor& descriptor) {
  if (descriptor.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    need(descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).size() == 4 &&
             descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES).size() == 4,
         "a tensor of other than four dimensions");
    need(descriptor.has(CUDNN_ATTR_TENSOR_UNIQUE_ID) && descriptor.has(CUDNN_ATTR_TENSOR_DATA_TYPE) &&
             descriptor.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) == 16,
         "a tensor lacks something");
  } else if (descriptor.type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) {
    const auto sizes = [&](cudnnBackendAttributeName_t name) {
      return descriptor.other(name).all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    };
    const auto q = sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
    const auto k = sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
    need(k == sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC) && q == sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC),
         "keys and values, or queries and results differ");
    need(q[1] % k[1] == 0 && q[3] == k[3], "heads do not fit");
    const std::vector<std::int64_t> lengths{q[0], 1, 1, 1};
    need(sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC) == lengths &&
             sizes(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC) == lengths,
         "lengths of other sequences");
    if (!with_pages(descriptor)) need(k[0] == q[0], "keys of other sequences");
  } else if (descriptor.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    need(descriptor.has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "a graph of no handle");
    need(operation_of(descriptor).type == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "a graph of another operation");
  } else if (descriptor.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    need(descriptor.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A, "another heuristic");
    need(descriptor.has(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), "a heuristic of no graph");
  } else if (descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    need(descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "a plan of no handle");
    need(descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), "a plan of no engine");
  } else if (descriptor.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    need(descriptor.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).size() ==
             descriptor.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).size(),
         "pointers of other tensors");
    need(descriptor.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) != nullptr, "no workspace");
  }
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t handle) {
  Descriptor& descriptor = known(handle);
  need(!descriptor.finalized, "a descriptor is finalised twice");
  if (descriptor.type == cudnn().refused) return CUDNN_STATUS_NOT_SUPPORTED;
  check_complete(descriptor);
  if (descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
      descriptor.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine < cudnn().failing_plans) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  descriptor.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t get_attribute(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count, void* values) {
  Descriptor& descriptor = known(handle);
  need(descriptor.finalized, "a descriptor is asked before it was finalised");
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    need(type == CUDNN_TYPE_INT64 && wanted == 1, "one number of bytes is asked for otherwise");
    *static_cast<std::int64_t*>(values) = 4096;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  need(name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR, "an attribute of no use here");
  const Descriptor& graph = descriptor.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  // As in the library, the announced count exceeds the number of usable configurations.
  *count = 3;
  if (wanted == 0) return CUDNN_STATUS_SUCCESS;
  const bool found = with_pages(operation_of(graph)) ? cudnn().engine_with_pages : cudnn().engine_without_pages;
  *count = found ? 2 : 0;
  for (std::int64_t i = 0; i < *count; ++i) {
    Descriptor& engine = known(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
    need(engine.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "no configuration to be filled in");
    engine.finalized = true;
    engine.engine = i;
    engine.graph = &graph;
  }
  return CUDNN_STATUS_SUCCESS;
}

class Tensor {
 public:
  Tensor(const Descriptor& descriptor, const std::map<std::int64_t, void*>& pointers)
      : id(descriptor.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        type(descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        sizes(descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(descriptor.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES)) {
    need(pointers.contains(id), "a tensor without a pointer");
    memory_ = pointers.at(id);
    cudnn().dimensions[id] = sizes;
    cudnn().strides[id] = strides;
    cudnn().types[id] = type;
    ++cudnn().tensors;
  }
  [[nodiscard]] std::int64_t integer(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    need(type == CUDNN_DATA_INT32, "indices of another type");
    return static_cast<const std::int32_t*>(memory_)[at(a, b, c, d)];
  }
  [[nodiscard]] float number(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    if (type == CUDNN_DATA_FLOAT) return static_cast<const float*>(memory_)[at(a, b, c, d)];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(memory_)[at(a, b, c, d)];
    return type == CUDNN_DATA_BFLOAT16 ? calibrate::gpu::number_of_bf16(bits) : calibrate::gpu::number_of_fp16(bits);
  }
  void store(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d, float number) const {
    if (type == CUDNN_DATA_BFLOAT16) {
      static_cast<__nv_bfloat16*>(memory_)[at(a, b, c, d)] = __float2bfloat16(number);
    } else {
      static_cast<__half*>(memory_)[at(a, b, c, d)] = __float2half(number);
    }
  }

  std::int64_t id;
  cudnnDataType_t type;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

 private:
  [[nodiscard]] std::int64_t at(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) const {
    need(a < sizes[0] && b < sizes[1] && c < sizes[2] && d < sizes[3], "an index that is too large");
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
  void* memory_;
};

void attend(const Descriptor& operation, const std::map<std::int64_t, void*>& pointers) {
  const auto tensor = [&](cudnnBackendAttributeName_t name) { return Tensor(operation.other(name), pointers); };
  const Tensor q = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC);
  const Tensor k = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC);
  const Tensor v = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC);
  const Tensor o = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC);
  const Tensor query_tokens = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC);
  const Tensor kv_tokens = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC);
  need(operation.other(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC).one<unsigned char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) == 1,
       "the scale is on the host, and its tensor does not say so");
  const float scale = tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC).number(0, 0, 0, 0);
  const bool pages = with_pages(operation);
  std::vector<Tensor> tables;
  if (pages) {
    tables.push_back(tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC));
    tables.push_back(tensor(CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC));
  }
  const bool wrong = pages ? cudnn().wrong_with_pages : cudnn().wrong_without_pages;
  const std::int64_t group = q.sizes[1] / k.sizes[1];
  for (std::int64_t sequence = 0; sequence < q.sizes[0]; ++sequence) {
    need(query_tokens.integer(sequence, 0, 0, 0) == 1 && q.sizes[2] == 1, "not one query token");
    // One token too few, if there are any.
    const std::int64_t tokens = kv_tokens.integer(sequence, 0, 0, 0);
    const std::int64_t seen = wrong ? std::max<std::int64_t>(1, tokens - 1) : tokens;
    for (std::int64_t head = 0; head < q.sizes[1]; ++head) {
      const auto cached = [&](const Tensor& cache, std::size_t table, std::int64_t token, std::int64_t i) {
        if (!pages) return cache.number(sequence, head / group, token, i);
        const std::int64_t page = tables[table].integer(sequence, 0, token / cache.sizes[2], 0);
        return cache.number(page, head / group, token % cache.sizes[2], i);
      };
      double sum = 0.0;
      std::vector<double> result(static_cast<std::size_t>(q.sizes[3]), 0.0);
      for (std::int64_t token = 0; token < seen; ++token) {
        double score = 0.0;
        for (std::int64_t i = 0; i < q.sizes[3]; ++i) {
          score += double{q.number(sequence, head, 0, i)} * double{cached(k, 0, token, i)};
        }
        const double weight = std::exp(score * double{scale});
        sum += weight;
        for (std::int64_t i = 0; i < q.sizes[3]; ++i) {
          result[static_cast<std::size_t>(i)] += weight * double{cached(v, 1, token, i)};
        }
      }
      for (std::int64_t i = 0; i < q.sizes[3]; ++i) {
        o.store(sequence, head, 0, i, static_cast<float>(result[static_cast<std::size_t>(i)] / sum));
      }
    }
  }
}

cudnnStatus_t execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  need(handle == kHandle, "another handle");
  need(known(plan).finalized && known(plan).type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "no plan is executed");
  need(known(pack).finalized && known(pack).type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "no pointers are given");
  if (cudnn().execution_fails) return CUDNN_STATUS_EXECUTION_FAILED;
  occupy(of_handle, kCudnnAttention);
  ++cudnn().executions;
  cudnn().tensors = 0;
  const auto ids = known(pack).all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto addresses = known(pack).all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, void*> pointers;
  for (std::size_t i = 0; i < ids.size(); ++i) pointers[ids[i]] = addresses[i];
  const Descriptor& engine = known(plan).other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  attend(operation_of(*engine.graph), pointers);
  need(cudnn().tensors == static_cast<std::int64_t>(ids.size()), "a pointer of no tensor");
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

Cudnn& cudnn() {
  static Cudnn one;
  return one;
}

}  // namespace spillway::emulated

namespace spillway::calibrate::gpu {

const CudnnLibrary* find_cudnn() {
  static const CudnnLibrary kLibrary{.version = emulated::version,
                                     .error_string = emulated::error_string,
                                     .last_error_string = emulated::last_error_string,
                                     .create = emulated::create,
                                     .destroy = emulated::destroy,
                                     .set_stream = emulated::set_stream,
                                     .create_descriptor = emulated::create_descriptor,
                                     .destroy_descriptor = emulated::destroy_descriptor,
                                     .set_attribute = emulated::set_attribute,
                                     .get_attribute = emulated::get_attribute,
                                     .finalize = emulated::finalize,
                                     .execute = emulated::execute};
  return emulated::cudnn().found ? &kLibrary : nullptr;
}

}  // namespace spillway::calibrate::gpu
