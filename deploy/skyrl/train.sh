#!/bin/sh
# Train Qwen3-8B: ./train.sh 1x8 hle DATA RUN [KEY=VALUE ...]
#   1x8, 2x8: so many nodes of eight GPUs, trainer and inference take turns on all of them
#   1x8-async, 2x8-async: half of the GPUs train and half sample, at the same time
#   hle, frames, toolscale, tau2: how long its episodes are
#   DATA: a folder with train.parquet and validation.parquet; RUN: a folder that every node sees
set -eu
place=$1 source=$2 data=$3 run=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
case $data in /*) ;; *) data=$PWD/$data ;; esac
case $run in /*) ;; *) run=$PWD/$run ;; esac
count=${place%%x*}
case $place in
1x8 | 2x8) sheet=turns nodes=$count gpus=8 fsdp=8 engines=$((8 * count)) ;;
1x8-async | 2x8-async) sheet=async nodes=1 gpus=$((4 * count)) fsdp=$((4 * count)) engines=$((4 * count)) ;;
*) echo "no place '$place'; valid: 1x8, 2x8, 1x8-async, 2x8-async" >&2 && exit 2 ;;
esac
# Lengths in tokens: first prompt, an episode before its last turn, one turn, and the model's window.
case $source in
hle) prompt=4096 episode=16384 turn=8192 window=24576 ;;
frames) prompt=4096 episode=24000 turn=8768 window=32768 ;;
toolscale) prompt=8192 episode=20480 turn=4096 window=24576 ;;
tau2) prompt=12288 episode=28672 turn=4096 window=32768 ;;
*) echo "no source '$source'; valid: hle, frames, toolscale, tau2" >&2 && exit 2 ;;
esac
[ $sheet = turns ] || set -- "trainer.fully_async.num_parallel_generation_workers=$((64 * count))" "$@"
export RAY_RUNTIME_ENV_HOOK=ray._private.runtime_env.uv_runtime_env_hook.hook
cd "$here" # Ray's hook takes the working folder to every node, and refuses one without this project
# shellcheck disable=SC2046 - each line without a # is one word
exec uv run --project "$here" python -m toolorchestra.agents.adapters.skyrl_train \
    $(grep -hv '^#' "$here/qwen3-8b.options" "$here/$sheet.options") \
    "trainer.placement.policy_num_nodes=$nodes" "trainer.placement.policy_num_gpus_per_node=$gpus" \
    "trainer.placement.ref_num_nodes=$nodes" "trainer.placement.ref_num_gpus_per_node=$gpus" \
    "trainer.policy.fsdp_config.fsdp_size=$fsdp" "generator.inference_engine.num_engines=$engines" \
    "trainer.train_batch_size=$((16 * count))" "trainer.policy_mini_batch_size=$((16 * count))" \
    "trainer.max_prompt_length=$prompt" "generator.max_input_length=$episode" \
    "generator.sampling_params.max_generate_length=$turn" "generator.eval_sampling_params.max_generate_length=$turn" \
    "generator.inference_engine.engine_init_kwargs={\"max_model_len\":$window}" \
    "data.train_data=['$data/train.parquet']" "data.val_data=['$data/validation.parquet']" \
    "trainer.policy.model.lora.lora_sync_path=$run/lora" \
    "trainer.ckpt_path=$run/checkpoints" "trainer.export_path=$run/exports" "trainer.log_path=$run/logs" "$@"
