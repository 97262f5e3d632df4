"""Config keys that have no effect on what a decoder computes at inference, and why they are there."""

from __future__ import annotations

TRAINING = (
    "attention_dropout",
    "initializer_range",
    "router_aux_loss_coef",
    "output_router_logits",
    "router_jitter_noise",
    "pretraining_tp",
    "ignore_index",
)
"""Set for training; dropout and losses are off at inference."""

SAVED_BY_TRANSFORMERS = (
    "_name_or_path",
    "add_cross_attention",
    "auto_map",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "finetuning_task",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "prefix",
    "problem_type",
    "pruned_heads",
    "return_dict",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
    "_attn_implementation",
)
"""Written into every config by the library that saved it."""

GENERATION_DEFAULTS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
)
"""Sampling defaults that older writers kept in the config; generation_config.json is what counts."""

INERT_KEYS = TRAINING + SAVED_BY_TRANSFORMERS + GENERATION_DEFAULTS
