#!/bin/sh
# Train Qwen3-8B: ./train.sh 1x8 hle DATA RUN [KEY=VALUE ...]
#   1x8, 2x8, 1x8-async, 2x8-async: where it runs; hle, frames, toolscale, tau2: how long its episodes are
#   DATA: a folder with train.parquet and validation.parquet; RUN: a folder that every node sees
set -eu
place=$1 source=$2 data=$3 run=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
export RAY_RUNTIME_ENV_HOOK=ray._private.runtime_env.uv_runtime_env_hook.hook
# shellcheck disable=SC2046 - each line without a # is one word
exec uv run --project "$here" python -m toolorchestra.agents.adapters.skyrl_train \
    $(grep -hv '^#' "$here/qwen3-8b.options" "$here/$place.options" "$here/sources/$source.options") \
    "data.train_data=['$data/train.parquet']" "data.val_data=['$data/validation.parquet']" \
    "trainer.ckpt_path=$run/checkpoints" "trainer.export_path=$run/exports" "trainer.log_path=$run/logs" "$@"
