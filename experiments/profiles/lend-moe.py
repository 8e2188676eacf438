"""Copies the MoE kernels of one GPU profile to another of as many SMs, scaled as `borrowed_from` scales.

    experiments/profiles/lend-moe.py LENDER.json BORROWER.json

Arithmetic in proportion to peak_flops times gemm_compute_efficiency, weights to memory_bandwidth times
gemm_memory_efficiency, other traffic to memory_bandwidth (hwmodels/fitted.hpp, borrowed()). `calibrate fit` with the
borrower as --base then writes the file in its own form.
"""

import json
import sys

OTHER_TRAFFIC = ("pair_hidden_s", "pair_width_s", "row_hidden_s", "row_width_s", "token_hidden_s")


def figure(profile, *names):
    product = 1.0
    for name in names:
        product *= profile["values"][name]["value"]
    return product


def main(lender_path, borrower_path):
    with open(lender_path, encoding="utf-8") as file:
        lender = json.load(file)
    with open(borrower_path, encoding="utf-8") as file:
        borrower = json.load(file)
    if lender["values"]["sm_count"]["value"] != borrower["values"]["sm_count"]["value"]:
        sys.exit("error: lender and borrower have different numbers of SMs, and the residuals hold for one number only")

    def ratio(*names):
        return figure(borrower, *names) / figure(lender, *names)

    kernels = lender["fitted"]["moe"]
    for kernel in kernels:
        kernel["flops_per_s"] *= ratio("peak_flops", "gemm_compute_efficiency")
        kernel["bandwidth_bytes_per_s"] *= ratio("memory_bandwidth", "gemm_memory_efficiency")
        for name in OTHER_TRAFFIC:
            kernel[name] /= ratio("memory_bandwidth")
        name = lender["name"]
        kernel["source"] = {"kind": "borrowed", "cite": f"{name}, scaled to this GPU; the error is that of {name}"}
    borrower["fitted"]["moe"] = kernels
    with open(borrower_path, "w", encoding="utf-8") as file:
        json.dump(borrower, file, indent=1)


main(*sys.argv[1:])
