#!/usr/bin/env python3
"""The library from Python: facts of a model, its tokens, and an answer, by ctypes alone.

    python3 facts.py models/demo "Hello"

LIBSHOAL names the shared library, if it is not where the system looks for libraries.
"""
import ctypes
import math
import os
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_int, c_int32, c_int64,
                    c_size_t, c_void_p, sizeof)

PIECE_TEXT = 0
PIECE = CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_char), c_size_t)


class Error(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 512)]


class Facts(Structure):
    _fields_ = [("size", c_size_t), ("family", c_char * 64), ("quantization", c_char * 160), ("layers", c_int),
                ("vocabulary", c_int), ("context", c_int), ("generates", c_int), ("parameters", c_int64),
                ("active_parameters", c_int64), ("bytes", c_int64), ("kv_token_bytes", c_int64),
                ("memory", c_int64), ("fits_tokens", c_int64), ("machines", c_int)]


class Question(Structure):
    _fields_ = [("size", c_size_t), ("messages", c_char_p), ("prompt", c_char_p), ("tools", c_char_p),
                ("stop", c_char_p), ("temperature", c_double), ("top_p", c_double),
                ("repetition_penalty", c_double), ("min_p", c_double), ("top_k", c_int64),
                ("max_tokens", c_int64), ("seed", c_int64), ("piece", PIECE), ("ctx", c_void_p)]


class Reply(Structure):
    _fields_ = [("size", c_size_t), ("finish", c_char * 32), ("prompt_tokens", c_int), ("cached_tokens", c_int),
                ("completion_tokens", c_int), ("prompt_s", c_double), ("answer_s", c_double)]


shoal = ctypes.CDLL(os.environ.get("LIBSHOAL", "libshoal.so.0"))
shoal.shoal_version.restype = c_char_p
shoal.shoal_settings_new.restype = c_void_p
shoal.shoal_text_encode.argtypes = [c_void_p, c_char_p, c_size_t, c_int, POINTER(POINTER(c_int32)),
                                    POINTER(c_size_t), POINTER(Error)]


def check(call, *args):
    """Raises what the library says is wrong."""
    err = Error()
    if call(*args, byref(err)) < 0:
        raise RuntimeError(err.text.decode())


def show_facts(settings):
    facts = Facts()
    shoal.shoal_facts_init(byref(facts), c_size_t(sizeof(facts)))
    check(shoal.shoal_model_facts, settings, byref(facts))
    print(f"{facts.family.decode()}, {facts.layers} layers, {facts.parameters / 1e6:.1f} million parameters")


def show_tokens(settings, text):
    handle, ids, count = c_void_p(), POINTER(c_int32)(), c_size_t()
    check(shoal.shoal_text_open, settings, byref(handle))
    check(shoal.shoal_text_encode, handle, text, len(text), 0, byref(ids), byref(count))
    print(ids[:count.value])
    shoal.shoal_free(ids)
    shoal.shoal_text_close(handle)


def show_answer(settings, prompt):
    model, question, reply = c_void_p(), Question(), Reply()
    check(shoal.shoal_model_open, settings, byref(model))

    @PIECE
    def piece(_ctx, kind, text, length):
        if kind == PIECE_TEXT:
            sys.stdout.write(ctypes.string_at(text, length).decode())
        return 0

    shoal.shoal_question_init(byref(question), c_size_t(sizeof(question)))
    assert math.isnan(question.temperature)  # the model's own
    question.prompt, question.max_tokens, question.piece = prompt, 16, piece
    shoal.shoal_reply_init(byref(reply), c_size_t(sizeof(reply)))
    check(shoal.shoal_model_ask, model, byref(question), byref(reply))
    print(f"\n{reply.finish.decode()} after {reply.completion_tokens} tokens")
    shoal.shoal_model_close(model)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: facts.py MODEL TEXT")
    settings, text = c_void_p(shoal.shoal_settings_new()), sys.argv[2].encode()
    check(shoal.shoal_settings_set, settings, b"model", sys.argv[1].encode())
    print("libshoal", shoal.shoal_version().decode())
    show_facts(settings)
    show_tokens(settings, text)
    show_answer(settings, text)
    shoal.shoal_settings_free(settings)


if __name__ == "__main__":
    main()
