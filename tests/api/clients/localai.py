# LocalAI's calls, with Debian's python3-grpcio and the messages that protoc makes of src/grpc/backend.proto.
# Answers are compared with those of the HTTP API of another server with the same model.
import json
import os
import signal
import sys
import threading
import time
import urllib.request

import grpc

import backend_pb2 as pb

address, http = os.environ['SHOAL_TEST_GRPC'], os.environ['SHOAL_TEST_URL']
model, supervisor = os.environ['SHOAL_TEST_MODEL'], int(os.environ['SHOAL_TEST_SERVE'])
token = (('authorization', 'Bearer ' + os.environ['SHOAL_TEST_TOKEN']),)
channel = grpc.insecure_channel(address)
PATIENCE = 120
STORY = 'Tell me a story about a fox and a lantern.'

unary = {}
for name, request, reply in [
        ('Health', pb.HealthMessage, pb.Reply), ('Status', pb.HealthMessage, pb.StatusResponse),
        ('Free', pb.HealthMessage, pb.Result), ('LoadModel', pb.ModelOptions, pb.Result),
        ('Predict', pb.PredictOptions, pb.Reply), ('Embedding', pb.PredictOptions, pb.EmbeddingResult),
        ('TokenizeString', pb.PredictOptions, pb.TokenizationResponse),
        ('Detokenize', pb.DetokenizeRequest, pb.DetokenizeResponse),
        ('Rerank', pb.RerankRequest, pb.RerankResult), ('GetMetrics', pb.MetricsRequest, pb.MetricsResponse),
        ('ModelMetadata', pb.ModelOptions, pb.ModelMetadataResponse), ('TTS', pb.HealthMessage, pb.Result)]:
    unary[name] = (request, channel.unary_unary('/backend.Backend/' + name, request_serializer=request.SerializeToString,
                                                response_deserializer=reply.FromString))
predict_stream = channel.unary_stream('/backend.Backend/PredictStream',
                                      request_serializer=pb.PredictOptions.SerializeToString,
                                      response_deserializer=pb.Reply.FromString)


def call(name, timeout=PATIENCE, metadata=token, **fields):
    request, method = unary[name]
    return method(request(**fields), timeout=timeout, metadata=metadata)


def stream(timeout=PATIENCE, **fields):
    return predict_stream(pb.PredictOptions(**fields), timeout=timeout, metadata=token)


def refused(code, text, run):
    try:
        run()
    except grpc.RpcError as error:
        assert error.code() == code, (error.code(), error.details())
        assert text in error.details(), error.details()
        return
    raise AssertionError('it was not refused')


def post(path, body):
    query = urllib.request.Request(http + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    with urllib.request.urlopen(query, timeout=PATIENCE) as answer:
        return json.load(answer)


def chat(**fields):
    return {'UseTokenizerTemplate': True, 'Messages': [pb.Message(role='user', content=fields.pop('ask'))], **fields}


def soon(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, 'it does not happen'
        time.sleep(0.05)


count = failures = 0


def test(claim):
    def run(body):
        global count, failures
        count += 1
        try:
            body()
            print(f'ok {count} - {claim}', flush=True)
        except BaseException as error:  # a failed claim must not hide the others
            failures += 1
            print(f'not ok {count} - {claim}\n# {type(error).__name__}: {str(error)[:600]!r}', flush=True)
    return run


@test('without a model: Health is OK, Status says so, Predict is refused')
def _():
    assert call('Health').message == b'OK'
    assert call('Status').state == pb.StatusResponse.UNINITIALIZED
    refused(grpc.StatusCode.FAILED_PRECONDITION, 'LoadModel', lambda: call('Predict', Prompt='x'))


@test('a call needs the token')
def _():
    refused(grpc.StatusCode.UNAUTHENTICATED, 'token', lambda: call('Health', metadata=()))
    wrong = (('authorization', 'Bearer something-else-7261'),)
    refused(grpc.StatusCode.UNAUTHENTICATED, 'token', lambda: call('Health', metadata=wrong))


@test('LoadModel says what is wrong')
def _():
    result = call('LoadModel', Model=model, Options=['top_p:much'])
    assert not result.success and "'top_p'" in result.message and 'much' in result.message, result
    result = call('LoadModel', Model=model, Options=['ranks:9999'])
    assert not result.success and '--ranks' in result.message and '9999' in result.message, result
    result = call('LoadModel', Model='/nowhere/at/all')
    assert not result.success and '/nowhere/at/all' in result.message, result
    assert call('Status').state == pb.StatusResponse.UNINITIALIZED


@test('LoadModel starts the model on two ranks, and names what has no effect')
def _():
    result = call('LoadModel', Model='demo', ModelPath=os.path.dirname(model), ContextSize=1024,
                  Options=['ranks:2', 'trust_remote_code:true', 'no_such_thing:1'])
    assert result.success, result
    assert 'trust_remote_code' in result.message and 'no_such_thing' in result.message, result
    assert call('Status').state == pb.StatusResponse.READY
    soon(lambda: call('Status').memory.total > 0)  # the ranks report it a moment later


@test('a prompt is continued as /v1/completions does at the same seed')
def _():
    want = post('/v1/completions', {'prompt': 'Once upon a', 'seed': 7, 'temperature': 0.7, 'max_tokens': 24})
    reply = call('Predict', Prompt='Once upon a', Seed=7, Temperature=0.7, Tokens=24)
    assert reply.message.decode() == want['choices'][0]['text'], (reply, want)
    assert (reply.prompt_tokens, reply.tokens) == (want['usage']['prompt_tokens'], want['usage']['completion_tokens'])
    assert reply.timing_token_generation > 0 and len(reply.chat_deltas) == 0


@test('temperature 0 is greedy')
def _():
    want = post('/v1/completions', {'prompt': 'Once upon a', 'temperature': 0, 'max_tokens': 24})
    assert call('Predict', Prompt='Once upon a', Tokens=24).message.decode() == want['choices'][0]['text']


@test('a stream of messages is what /v1/chat/completions answers, with log-probabilities')
def _():
    ask = {'messages': [{'role': 'user', 'content': STORY}], 'seed': 5, 'temperature': 0.8, 'max_tokens': 40}
    want = post('/v1/chat/completions', {**ask, 'logprobs': True, 'top_logprobs': 2})
    parts = list(stream(**chat(ask=STORY, Seed=5, Temperature=0.8, Tokens=40, Logprobs=1, TopLogprobs=2)))
    assert len(parts) > 5
    assert b''.join(part.message for part in parts).decode() == want['choices'][0]['message']['content']
    assert ''.join(delta.content for part in parts for delta in part.chat_deltas) == want['choices'][0]['message']['content']
    assert parts[-1].tokens == want['usage']['completion_tokens']
    found = [item for part in parts if part.logprobs for item in json.loads(part.logprobs)['content']]
    for one, other in zip(found, want['choices'][0]['logprobs']['content'], strict=True):
        # On two ranks sums are rounded in another order than on one.
        assert one['bytes'] == other['bytes'] and abs(one['logprob'] - other['logprob']) < 1e-2, (one, other)
        assert len(one['top_logprobs']) == 2


@test('tools give calls')
def _():
    tools = [{'type': 'function', 'function': {'name': 'get_weather', 'description': 'Get the current weather of a city',
              'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']}}}]
    reply = call('Predict', **chat(ask='What is the weather in Oslo?', Tools=json.dumps(tools), ToolChoice='auto'))
    calls = [c for delta in reply.chat_deltas for c in delta.tool_calls]
    assert len(calls) == 1 and calls[0].name == 'get_weather' and calls[0].id, reply
    assert json.loads(calls[0].arguments) == {'city': 'Oslo'}, reply
    parts = list(stream(**chat(ask='What is the weather in Oslo?', Tools=json.dumps(tools), ToolChoice='"auto"')))
    calls = [c for part in parts for delta in part.chat_deltas for c in delta.tool_calls]
    assert [c.name for c in calls if c.name] == ['get_weather']
    assert json.loads(''.join(c.arguments for c in calls)) == {'city': 'Oslo'}
    refused(grpc.StatusCode.INVALID_ARGUMENT, 'Tools', lambda: call('Predict', **chat(ask='x', Tools='[')))


@test('a grammar, stop strings, a bias and an ignored end are obeyed')
def _():
    reply = call('Predict', Prompt='Is it?', Grammar='root ::= "yes" | "no"', Tokens=20)
    assert reply.message in (b'yes', b'no'), reply
    refused(grpc.StatusCode.INVALID_ARGUMENT, '', lambda: call('Predict', Prompt='x', Grammar='root ::= ('))
    whole = call('Predict', **chat(ask='Count to 20.', Tokens=60)).message.decode()
    cut = call('Predict', **chat(ask='Count to 20.', Tokens=60, StopPrompts=[', 7'])).message.decode()
    assert cut == whole.split(', 7')[0], (whole, cut)
    long = call('Predict', **chat(ask='What is 37 + 48?', Tokens=50, IgnoreEOS=True))
    assert long.tokens == 50
    first = call('TokenizeString', Prompt=whole).tokens[-1]
    call('Predict', Prompt='x', Tokens=2, LogitBias=json.dumps({str(first): -100}))
    refused(grpc.StatusCode.INVALID_ARGUMENT, 'LogitBias', lambda: call('Predict', Prompt='x', LogitBias='{'))


@test('the id that LocalAI gives a request is its id here')
def _():
    options = pb.PredictOptions(Prompt='x', Tokens=1, CorrelationId='local-7.a')
    _, answered = unary['Predict'][1].with_call(options, timeout=PATIENCE, metadata=token)
    assert ('x-request-id', 'local-7.a') in [tuple(pair) for pair in answered.initial_metadata()]


@test('TokenizeString and Detokenize agree with the HTTP API, and with each other')
def _():
    text = 'A fox, a lantern and 42 more.'
    tokens = list(call('TokenizeString', Prompt=text).tokens)
    assert tokens == post('/tokenize', {'prompt': text})['tokens']
    assert text in call('Detokenize', tokens=tokens).content
    refused(grpc.StatusCode.INVALID_ARGUMENT, 'tokens', lambda: call('Detokenize', tokens=[1 << 30]))


@test('a stream that is cancelled ends in the engine')
def _():
    running = stream(Prompt='Once', IgnoreEOS=True, Tokens=900)
    next(running)
    running.cancel()
    soon(lambda: call('Status').state == pb.StatusResponse.READY)


@test('a deadline is kept')
def _():
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, '',
            lambda: list(stream(Prompt='Once', IgnoreEOS=True, Tokens=1000, timeout=0.05)))
    soon(lambda: call('Status').state == pb.StatusResponse.READY)


@test('eight streams at once are the same as alone')
def _():
    def answer(seed):
        return b''.join(part.message for part in stream(Prompt='Once upon a', Seed=seed, Temperature=1, Tokens=40))
    alone, together = [answer(seed) for seed in range(1, 9)], [None] * 8

    def run(i):
        together[i] = answer(i + 1)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone == together and len(set(alone)) > 1


@test('a message over 50 MiB is refused, and so is what does not apply')
def _():
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED, '50 MiB', lambda: call('Predict', Prompt='x' * (51 << 20)))
    refused(grpc.StatusCode.UNIMPLEMENTED, 'TTS', lambda: call('TTS'))
    refused(grpc.StatusCode.INVALID_ARGUMENT, 'pooling', lambda: call('Embedding', Embeddings='x'))
    refused(grpc.StatusCode.INVALID_ARGUMENT, 'text', lambda: call('Predict', Prompt='x', Images=['aGk=']))


def ancestors(pid):
    while pid > 1:
        with open(f'/proc/{pid}/stat') as file:
            pid = int(file.read().rpartition(')')[2].split()[1])
        yield pid


def rank_kill():
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{name}/environ') as file:
                mine = 'SHOAL_RANK=1' in file.read().split('\0')
            if mine and supervisor in ancestors(int(name)):
                return os.kill(int(name), signal.SIGKILL)
        except OSError:
            pass  # it has ended meanwhile
    raise AssertionError('there is no rank 1')


@test('an answer outlives a rank that is killed')
def _():
    fields = chat(ask=STORY, Seed=3, Temperature=0.9, Tokens=120, IgnoreEOS=True)
    whole = b''.join(part.message for part in stream(**fields))
    again, parts = b'', 0
    for part in stream(**fields):
        again += part.message
        parts += 1
        if parts == 10:
            rank_kill()
    assert again == whole


@test('GetMetrics and ModelMetadata tell of the last answer and of the model')
def _():
    assert call('GetMetrics').tokens_generated == 120
    assert call('ModelMetadata').supports_thinking


@test('another LoadModel replaces the model when it is idle, and its options are defaults')
def _():
    other = {'Model': model, 'ContextSize': 512, 'Options': ['pooling:mean', 'max_tokens:5', 'temperature:1', 'seed:3']}
    for _ in range(10):  # the answer may be complete before the call arrives
        running = stream(Prompt='Once', IgnoreEOS=True, Tokens=900)
        next(running)
        try:
            assert call('LoadModel', **other).success
            assert call('LoadModel', Model=model, ContextSize=1024).success
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION and 'answering' in error.details(), error
            break
    else:
        raise AssertionError('a busy model was replaced')
    running.cancel()
    soon(lambda: call('Status').state == pb.StatusResponse.READY)
    assert call('LoadModel', **other).success
    want = post('/v1/completions', {'prompt': 'Once upon a', 'seed': 3, 'temperature': 1, 'max_tokens': 5})
    assert call('Predict', Prompt='Once upon a').message.decode() == want['choices'][0]['text']
    vector = call('Embedding', Embeddings='a fox')
    assert vector.dim == len(vector.embeddings) > 0
    assert call('LoadModel', **other).success  # the same again: nothing happens


@test('Free unloads, and a running answer learns why it ends')
def _():
    for _ in range(10):  # the answer may be complete before the call arrives
        assert call('LoadModel', Model=model, ContextSize=1024).success
        running = stream(Prompt='Once', IgnoreEOS=True, Tokens=900)
        next(running)
        assert call('Free').success
        assert call('Status').state == pb.StatusResponse.UNINITIALIZED
        try:
            list(running)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE and 'unloaded' in error.details(), error
            break
    else:
        raise AssertionError('no answer was ended')
    assert call('Free').success


@test('Rerank orders documents, best first')
def _():
    assert call('LoadModel', Model=os.environ['SHOAL_TEST_RERANKER']).success
    ranking = call('Rerank', query='a fox', documents=['a dog', 'the fox runs', 'tea'], top_n=2)
    scores = [result.relevance_score for result in ranking.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True), ranking
    assert ranking.results[0].text == ['a dog', 'the fox runs', 'tea'][ranking.results[0].index]
    assert ranking.usage.total_tokens > 0
    refused(grpc.StatusCode.INVALID_ARGUMENT, '', lambda: call('Predict', Prompt='x'))
    assert call('Free').success


print(f'1..{count}')
sys.exit(failures != 0)
