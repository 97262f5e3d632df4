#!/usr/bin/env bash
# The road of day0 on a tiny model shaped like Kimi K3: make it, inspect it, plan the real one, check it.
# Usage: scripts/demo.sh [OUT]
set -uo pipefail
day0=${DAY0:-day0}
out=${1:-out}
model=$out/tiny-kimi-k3
report=$out/report

# Run one command and show its exit status. 1 ("no") and 4 ("cannot say") are answers; anything else ends the demo.
step() {
  local status
  printf '\n$ day0 %s\n' "$*"
  "$day0" "$@"
  status=$?
  printf '[exit status %s]\n' "$status"
  case $status in
    0 | 1 | 4) ;;
    *) exit "$status" ;;
  esac
}

step skeleton recipe:kimi-k3 "$model" --scale tiny --force
step inspect "$model"
step plan recipe:kimi-k3 --cluster h200:8x2
step run-checklist "$model" --report-dir "$report"

printf '\nThe report is in %s:\n' "$report"
ls "$report"
