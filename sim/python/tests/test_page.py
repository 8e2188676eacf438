"""The code of docs/python.md runs, block by block, and gives what the page says."""

import re


def test_the_code_of_the_page(root, program):
    page = (root / "docs/python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names = {}
    for block in blocks:
        exec(block, names)
    assert len(names["table"]) == 4
    assert set(names["table"]["policy"]) == {"vllm", "sarathi"}
    keys = ["model=llama-3.1-8b", "hardware=h100-80gb-sxm", "workload.rate=8"]
    assert names["result"].to_json() == program("run", *keys, "--json")
