"""Tiny random embedding models, and what sentence-transformers makes of a few texts with them.

    python3 oracle.py OUT

Needs torch, transformers, sentence-transformers, tokenizers and sentencepiece; the tests need none of them. Each folder has the
files that such a model has on the hub, and golden.json: texts, their ids, and the embeddings in float32 (or pairs and scores)."""
import json, math, os, shutil, sys, tempfile

import sentencepiece as spm
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers import models as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerFast

OUT = sys.argv[1]
WIDTH, VOCAB = 32, 256
TEXTS = [
    "A shoal of small fish swims as one.",
    "Which model is the fastest? None of them, they all wait for memory!",
    "Überall dieselbe Größe: naïve Café-Gäste zahlen 3,50 €.",
    "鱼群 swims 鯨 and 🐟🐟 too",
    "x",
]
CORPUS = TEXTS + ["the quick brown fox jumps over the lazy dog", "swimming models remember fewer memories than waiting foxes",
                  "Pack my box with five dozen liquor jugs. 0123456789", "größer, schöner, weiter; naïveté"] * 4
PAIRS = [("what swims", TEXTS[0]), ("what swims", TEXTS[1]), ("memory", TEXTS[1]), ("memory", "x")]

generator = torch.Generator().manual_seed(7)


def randomize(model):
    for name, p in model.named_parameters():
        r = torch.randn(p.shape, generator=generator)
        with torch.no_grad():
            if "norm" in name.lower() and p.dim() == 1 and name.endswith("weight"):
                p.copy_(1 + 0.2 * r)
            elif p.dim() == 1:
                p.copy_(0.2 * r)
            elif "embed" in name:
                p.copy_(0.7 * r)
            else:
                p.copy_(1.5 * r / math.sqrt(p.shape[-1]))


def special(tok, **named):
    return PreTrainedTokenizerFast(tokenizer_object=tok, model_max_length=64, **named)


def wordpiece():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=VOCAB, special_tokens=names, show_progress=False))
    cls, sep = tok.token_to_id("[CLS]"), tok.token_to_id("[SEP]")
    tok.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    return special(tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
                   model_input_names=["input_ids", "token_type_ids", "attention_mask"])


def unigram():
    """As xlm-roberta has it: SentencePiece's unigram with a charsmap, here of a few rules of its own."""
    with tempfile.TemporaryDirectory() as d:
        rules = [("ﬁ", "fi"), ("Ａ", "A"), ("№", "No"), ("…", "..."), ("e\u0301", "\u00e9"), ("\u00ad", "")]
        code = lambda text: " ".join(f"{ord(c):X}" for c in text)
        open(f"{d}/rules.tsv", "w").write("".join(f"{code(a)}\t{code(b)}\n" for a, b in rules))
        open(f"{d}/corpus", "w").write("\n".join(CORPUS))
        spm.SentencePieceTrainer.train(input=f"{d}/corpus", model_prefix=f"{d}/m", vocab_size=200, hard_vocab_limit=False,
                                       normalization_rule_tsv=f"{d}/rules.tsv", minloglevel=2, character_coverage=0.98)
        proto = spm.SentencePieceProcessor(model_file=f"{d}/m.model")
        from sentencepiece import sentencepiece_model_pb2
        model = sentencepiece_model_pb2.ModelProto()
        model.ParseFromString(open(f"{d}/m.model", "rb").read())
    vocab = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocab += [(proto.id_to_piece(i), proto.get_score(i)) for i in range(3, proto.get_piece_size())]
    vocab += [("<mask>", 0.0)]
    tok = Tokenizer(models.Unigram(vocab, unk_id=3))
    tok.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                                           normalizers.Replace(__import__("tokenizers").Regex(" {2,}"), " ")])
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tok.decoder = decoders.Metaspace()
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>",
                                                       special_tokens=[("<s>", 0), ("</s>", 2)])
    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tok.add_special_tokens(names)
    return special(tok, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", cls_token="<s>",
                   sep_token="</s>", mask_token="<mask>")


def bytelevel(single, **named):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    names = sorted(set(named.values()))
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=VOCAB + 60, special_tokens=names, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(n, tok.token_to_id(n)) for n in names])
    return special(tok, **named)


def config(kind, tok, **kw):
    base = dict(vocab_size=len(tok), hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
                pad_token_id=tok.pad_token_id, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return AutoConfig.for_model(kind, **{**base, **kw})


def clean(folder, keep=()):
    """Keeps what the server reads."""
    for root, _, files in os.walk(folder):
        for f in files:
            if f in ("README.md", "special_tokens_map.json", "sentence_bert_config.json") and f not in keep:
                os.remove(f"{root}/{f}")
    path = f"{folder}/config.json"
    raw = json.load(open(path))
    raw.pop("transformers_version", None)
    json.dump(raw, open(path, "w"), indent=1)


def save_model(folder, model, tok):
    randomize(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    tok.save_pretrained(folder)


def rounded(t):
    return [[float(f"{v:.7g}") for v in row] for row in t.tolist()]


def embedder(name, cfg, tok, pooling, dense=(), normalize=True, prompts=None, max_len=64, extra=None):
    folder = f"{OUT}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as t:
        save_model(t, AutoModel.from_config(cfg), tok)
        word = st.Transformer(t, max_seq_length=max_len, model_args={"attn_implementation": "eager", "dtype": torch.float32})
        parts = [word, st.Pooling(WIDTH, pooling_mode=pooling)]
        for width, act in dense:
            parts.append(st.Dense(parts[-1].get_sentence_embedding_dimension() if len(parts) == 2 else parts[-1].out_features,
                                  width, bias=True, activation_function=act))
            randomize(parts[-1])
        if normalize:
            parts.append(st.Normalize())
        model = SentenceTransformer(modules=parts, device="cpu", prompts=prompts)
        model.save(folder)
        shutil.copy(f"{t}/model.safetensors", folder)  # bfloat16, where save() would write float32
        shutil.copy(f"{t}/config.json", folder)
    if extra:
        raw = json.load(open(f"{folder}/config.json"))
        raw.update(extra)
        json.dump(raw, open(f"{folder}/config.json", "w"))
    clean(folder, keep=("sentence_bert_config.json",))
    model = SentenceTransformer(folder, device="cpu", model_kwargs={"attn_implementation": "eager", "dtype": torch.float32})
    long = " ".join(TEXTS[:3] * 2)[:200]
    texts = TEXTS + [long]
    ids = [tok(t, truncation=False)["input_ids"] for t in texts]
    with torch.no_grad():
        out = [model.encode([t], convert_to_tensor=True, prompt="")[0] for t in texts]
        golden = {"texts": texts, "ids": ids, "embeddings": rounded(torch.stack(out))}
        if prompts:
            golden["prompted"] = {k: rounded(model.encode(texts[:1], prompt_name=k, convert_to_tensor=True))[0] for k in prompts}
    json.dump(golden, open(f"{folder}/golden.json", "w"), ensure_ascii=False, indent=1)
    print(name, [len(i) for i in ids], len(golden["embeddings"][0]))


def reranker(name, cfg, tok):
    folder = f"{OUT}/{name}"
    shutil.rmtree(folder, ignore_errors=True)
    save_model(folder, AutoModelForSequenceClassification.from_config(cfg), tok)
    clean(folder)
    model = CrossEncoder(folder, device="cpu", model_kwargs={"attn_implementation": "eager", "dtype": torch.float32})
    ids = [tok(a, b)["input_ids"] for a, b in PAIRS]
    scores = [float(model.predict([p])[0]) for p in PAIRS]
    json.dump({"pairs": PAIRS, "ids": ids, "scores": scores}, open(f"{folder}/golden.json", "w"), ensure_ascii=False, indent=1)
    print(name, scores)


WP, UNI = wordpiece(), unigram()
QWEN = bytelevel("$A <eos>", eos_token="<eos>", pad_token="<pad>")
GEMMA = bytelevel("<bos> $A <eos>", bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")
MODERN = bytelevel("[CLS] $A [SEP]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]")

embedder("bert-mean", config("bert", WP, max_position_embeddings=128, type_vocab_size=2), WP, "mean",
         prompts={"query": "search: ", "passage": "A shoal: "}, max_len=128)
embedder("xlm-roberta-cls", config("xlm-roberta", UNI, max_position_embeddings=130, type_vocab_size=1, bos_token_id=0, eos_token_id=2),
         UNI, "cls", dense=[(24, torch.nn.Tanh())], normalize=False, max_len=128)
embedder("nomic-mean", config("nomic_bert", WP, max_position_embeddings=128), WP, "mean", max_len=128)
embedder("modernbert-mean", config("modernbert", MODERN, max_position_embeddings=256, local_attention=16, num_hidden_layers=4,
                                   cls_token_id=MODERN.cls_token_id, sep_token_id=MODERN.sep_token_id, bos_token_id=None,
                                   eos_token_id=None), MODERN, "mean", max_len=256, extra={"matryoshka_dimensions": [8, 16]})
embedder("qwen3-last", config("qwen3", QWEN, num_key_value_heads=2, head_dim=16, max_position_embeddings=256, eos_token_id=QWEN.eos_token_id,
                              tie_word_embeddings=True), QWEN, "lasttoken", max_len=256)
embedder("gemma3-dense", config("gemma3_text", GEMMA, num_key_value_heads=2, head_dim=16, max_position_embeddings=256, sliding_window=16,
                                query_pre_attn_scalar=16, use_bidirectional_attention=True, bos_token_id=GEMMA.bos_token_id,
                                eos_token_id=GEMMA.eos_token_id, layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
         GEMMA, "mean", dense=[(40, torch.nn.Identity()), (32, torch.nn.Identity())], max_len=256)
reranker("bert-rerank", config("bert", WP, max_position_embeddings=128, num_labels=1), WP)
reranker("xlm-roberta-rerank", config("xlm-roberta", UNI, max_position_embeddings=130, type_vocab_size=1, num_labels=1, bos_token_id=0,
                                      eos_token_id=2), UNI)
