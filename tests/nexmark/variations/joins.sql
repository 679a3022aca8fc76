-- Two aggregates joined on their keys, aggregated.
-- sources: auction bid
CREATE TABLE tables_joined AS WITH b AS (SELECT auction, COUNT(*) AS n, MAX(price) AS top FROM bid GROUP BY auction),
 a AS (SELECT id, LATEST_BY_OFFSET(category) AS category, LATEST_BY_OFFSET(seller) AS seller FROM auction GROUP BY id)
 SELECT a.category, COUNT(*) AS auctions, SUM(b.n) AS bids, MAX(b.top) AS top FROM a JOIN b ON a.id = b.auction GROUP BY a.category;

-- answer
WITH b AS (SELECT auction, COUNT(*) AS n, MAX(price) AS top FROM bid GROUP BY auction)
 SELECT a.category, COUNT(*) AS auctions, SUM(b.n) AS bids, MAX(b.top) AS top FROM auction a JOIN b ON a.id = b.auction GROUP BY a.category

-- next
-- An aggregate joined to a table by a column that is no key.
-- sources: person auction bid
CREATE TABLE average_by_state AS SELECT p.state, COUNT(*) AS n, AVG(q.final) AS average FROM (
    SELECT a.seller, a.id, MAX(b.price) AS final FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.seller, a.id) q
  JOIN (SELECT id, LATEST_BY_OFFSET(state) AS state FROM person GROUP BY id) p ON q.seller = p.id
  GROUP BY p.state;

-- answer
SELECT p.state, COUNT(*) AS n, AVG(q.final) AS average FROM (
    SELECT a.seller, a.id, MAX(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.seller, a.id) q
  JOIN person p ON q.seller = p.id GROUP BY p.state

-- next
-- The bids that are equal to the maximum of their window.
-- sources: bid
CREATE TABLE highest_by_join AS
  SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
  FROM bid b JOIN (
    SELECT MAX(price) AS top, window_start, window_end
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end) w
  ON b.price = w.top AND b.dateTime >= w.window_start AND b.dateTime < w.window_end;

-- answer
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid b JOIN (
  SELECT max(price) AS top, window_start FROM hops(bid, 10000, 10000) GROUP BY window_start) w
ON b.price = w.top AND b.dateTime >= w.window_start AND b.dateTime < w.window_start + INTERVAL 10 SECOND

-- next
-- The largest sum of a window by a join.
-- sources: bid
CREATE TABLE top_total_by_join AS
  WITH n AS (
    SELECT auction, window_start, window_end, SUM(price) AS total
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '5' SECOND))
    GROUP BY auction, window_start, window_end),
  m AS (SELECT window_start, MAX(total) AS top, MIN(total) AS low FROM n GROUP BY window_start)
  SELECT n.window_start AS window_start, n.auction, n.total, m.low
  FROM n JOIN m ON n.window_start = m.window_start AND n.total = m.top;

-- answer
WITH n AS (SELECT auction, window_start, window_end, sum(price) AS total FROM hops(bid, 5000, 5000) GROUP BY ALL),
  m AS (SELECT window_start, MAX(total) AS top, MIN(total) AS low FROM n GROUP BY window_start)
  SELECT n.window_start AS window_start, n.auction, n.total, m.low
  FROM n JOIN m ON n.window_start = m.window_start AND n.total = m.top

-- next
-- The bids that are equal to the maximum of their auction.
-- sources: bid
CREATE TABLE highest_of_auction AS SELECT b.auction AS auction, b.price, b.bidder FROM bid b JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON b.auction = m.auction AND b.price = m.top;

-- answer
SELECT b.auction AS auction, b.price, b.bidder FROM bid b JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON b.auction = m.auction AND b.price = m.top

-- next
-- A left join of aggregates.
-- sources: auction bid
CREATE TABLE left_tables AS SELECT s.seller, s.n, t.m FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s LEFT JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid GROUP BY bidder) t ON s.seller = t.bidder;

-- answer
SELECT s.seller, s.n, t.m FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s LEFT JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid GROUP BY bidder) t ON s.seller = t.bidder

-- next
-- A full join of aggregates.
-- sources: auction bid
CREATE TABLE full_tables AS SELECT s.seller, t.bidder, s.n, t.m FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s FULL OUTER JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 1000000 GROUP BY bidder) t ON s.seller = t.bidder;

-- answer
SELECT s.seller, t.bidder, s.n, t.m FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s FULL OUTER JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 1000000 GROUP BY bidder) t ON s.seller = t.bidder

-- next
-- A left join with a table of rows.
-- sources: person auction
CREATE TABLE people_with_counts AS SELECT p.id AS id, p.name, a.n FROM
 (SELECT id, LATEST_BY_OFFSET(name) AS name FROM person GROUP BY id) p LEFT JOIN (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) a ON p.id = a.seller;

-- answer
SELECT p.id AS id, p.name, a.n FROM person p LEFT JOIN (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) a ON p.id = a.seller

-- next
-- Two aggregates joined on their results.
-- sources: auction bid
CREATE TABLE equal_counts AS SELECT s.seller, t.bidder, s.n FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 50000000 GROUP BY bidder) t ON s.n = t.m;

-- answer
SELECT s.seller, t.bidder, s.n FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 50000000 GROUP BY bidder) t ON s.n = t.m

-- next
-- Streams joined on key and window.
-- sources: person auction
CREATE STREAM same_window AS
  SELECT p.id AS id, p.name, a.id AS auction, p.window_start AS window_start
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '20' SECOND)) p
  JOIN TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '20' SECOND)) a WITHIN 20 SECONDS
  ON p.id = a.seller AND p.window_start = a.window_start WHERE a.reserve > 10000;

-- answer
SELECT p.id AS id, p.name, a.id AS auction, p.window_start AS window_start
FROM hops(person, 20000, 20000) p JOIN hops(auction, 20000, 20000) a
ON p.id = a.seller AND p.window_start = a.window_start WHERE a.reserve > 10000

-- next
-- Three streams, filtered.
-- sources: auction person bid
CREATE STREAM three_streams AS
  SELECT b.auction, p.name, a.category, b.price
  FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id
  JOIN person p WITHIN UNBOUNDED ON a.seller = p.id
  WHERE a.category IN (11, 12) AND p.state = 'OR' AND b.price > 100000;

-- answer
SELECT b.auction, p.name, a.category, b.price
  FROM bid b JOIN auction a ON b.auction = a.id
  JOIN person p ON a.seller = p.id
  WHERE a.category IN (11, 12) AND p.state = 'OR' AND b.price > 100000

-- next
-- An equality and a comparison.
-- sources: bid auction
CREATE STREAM above_reserve AS
  SELECT b.auction, b.price, a.reserve
  FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id AND b.price >= a.reserve;

-- answer
SELECT b.auction, b.price, a.reserve FROM bid b JOIN auction a ON b.auction = a.id AND b.price >= a.reserve

-- next
-- A join within seconds.
-- sources: bid auction
CREATE STREAM within_seconds AS SELECT b.auction, b.price, a.category FROM bid b JOIN auction a WITHIN 5 SECONDS ON b.auction = a.id WHERE b.price > a.initialBid;

-- answer
SELECT b.auction, b.price, a.category FROM bid b JOIN auction a ON b.auction = a.id AND abs(epoch_ms(b.dateTime) - epoch_ms(a.dateTime)) <= 5000 WHERE b.price > a.initialBid

-- next
-- A stream with itself.
-- sources: bid
CREATE STREAM self_join AS SELECT x.bidder AS bidder, x.auction AS first, y.auction AS second FROM bid x JOIN bid y WITHIN UNBOUNDED ON x.bidder = y.bidder AND x.price < y.price WHERE x.price > 20000000 AND y.price > 20000000 AND x.auction <> y.auction;

-- answer
SELECT x.bidder AS bidder, x.auction AS first, y.auction AS second FROM bid x JOIN bid y ON x.bidder = y.bidder AND x.price < y.price WHERE x.price > 20000000 AND y.price > 20000000 AND x.auction <> y.auction

-- next
-- Streams joined on two columns.
-- sources: auction bid
CREATE STREAM two_equalities AS SELECT a.id, b.price, b.dateTime AS placed FROM auction a JOIN bid b WITHIN UNBOUNDED ON a.id = b.auction AND a.seller = b.bidder;

-- answer
SELECT a.id, b.price, b.dateTime AS placed FROM auction a JOIN bid b ON a.id = b.auction AND a.seller = b.bidder

-- next
-- Aggregates of all kinds over a join.
-- sources: auction bid
CREATE TABLE joined_then_grouped AS SELECT q.category, COUNT(*) AS bids, COUNT(DISTINCT q.bidder) AS bidders, SUM(q.price) FILTER (WHERE q.price > 100000) AS big
 FROM (SELECT a.category, b.bidder, b.price FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id WHERE b.dateTime < a.expires) q
 GROUP BY q.category HAVING COUNT(*) > 10;

-- answer
SELECT q.category, COUNT(*) AS bids, COUNT(DISTINCT q.bidder) AS bidders, SUM(q.price) FILTER (WHERE q.price > 100000) AS big
 FROM (SELECT a.category, b.bidder, b.price FROM bid b JOIN auction a ON b.auction = a.id WHERE b.dateTime < a.expires) q
 GROUP BY q.category HAVING COUNT(*) > 10

-- next
-- SELECT DISTINCT over a join.
-- sources: auction bid
CREATE TABLE distinct_of_join AS SELECT DISTINCT a.category, b.channel FROM bid b JOIN auction a WITHIN UNBOUNDED ON b.auction = a.id WHERE b.price > 5000000;

-- answer
SELECT DISTINCT a.category, b.channel FROM bid b JOIN auction a ON b.auction = a.id WHERE b.price > 5000000

-- next
-- A stream with a table that the statement makes.
-- sources: bid auction
CREATE TABLE stream_with_aggregate AS SELECT a.id AS id, a.itemName, m.top FROM auction a JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON a.id = m.auction;

-- answer
SELECT a.id AS id, a.itemName, m.top FROM auction a JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON a.id = m.auction

-- next
-- The same, left.
-- sources: auction bid
CREATE TABLE left_with_aggregate AS SELECT a.id AS id, a.reserve, m.top FROM auction a LEFT JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON a.id = m.auction;

-- answer
SELECT a.id AS id, a.reserve, m.top FROM auction a LEFT JOIN (SELECT auction, MAX(price) AS top FROM bid GROUP BY auction) m ON a.id = m.auction

-- next
-- An aggregate of a left join.
-- sources: auction bid
CREATE TABLE left_then_grouped AS SELECT c, COUNT(*) AS n, COUNT(top) AS t, MAX(top) AS m FROM (SELECT a.category AS c, m.top FROM auction a LEFT JOIN (SELECT auction, MAX(price) AS top FROM bid WHERE price > 1000000 GROUP BY auction) m ON a.id = m.auction) q GROUP BY c;

-- answer
SELECT c, COUNT(*) AS n, COUNT(top) AS t, MAX(top) AS m FROM (SELECT a.category AS c, m.top FROM auction a LEFT JOIN (SELECT auction, MAX(price) AS top FROM bid WHERE price > 1000000 GROUP BY auction) m ON a.id = m.auction) q GROUP BY c

-- next
-- A left join on two columns, with rows that go away.
-- sources: auction bid
CREATE TABLE left_on_two AS SELECT a.id AS id, m.n FROM auction a LEFT JOIN (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY auction, bidder HAVING COUNT(*) < 4) m ON a.id = m.auction AND a.seller = m.bidder;

-- answer
SELECT a.id AS id, m.n FROM auction a LEFT JOIN (SELECT auction, bidder, COUNT(*) AS n FROM bid GROUP BY auction, bidder HAVING COUNT(*) < 4) m ON a.id = m.auction AND a.seller = m.bidder

-- next
-- SUM of what a left join leaves NULL.
-- sources: auction bid
CREATE TABLE sums_of_nothing AS SELECT s.seller, SUM(t.m) AS bids, COUNT(t.m) AS n FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s LEFT JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 1000000 GROUP BY bidder) t ON s.seller = t.bidder GROUP BY s.seller;

-- answer
SELECT s.seller, SUM(t.m) AS bids, COUNT(t.m) AS n FROM
  (SELECT seller, COUNT(*) AS n FROM auction GROUP BY seller) s LEFT JOIN
  (SELECT bidder, COUNT(*) AS m FROM bid WHERE price > 1000000 GROUP BY bidder) t ON s.seller = t.bidder GROUP BY s.seller

-- next
-- An equality and a comparison with an average.
-- sources: bid
CREATE TABLE far_above_average AS SELECT b.auction AS auction, b.window_start AS window_start, b.num FROM
 (SELECT auction, window_start, COUNT(*) AS num FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY auction, window_start) b
 JOIN (SELECT window_start, AVG(num) AS mean FROM (SELECT auction, window_start, COUNT(*) AS num FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY auction, window_start) c GROUP BY window_start) m
 ON b.window_start = m.window_start AND b.num > 2 * m.mean;

-- answer
SELECT b.auction AS auction, b.window_start AS window_start, b.num FROM
 (SELECT auction, window_start, COUNT(*) AS num FROM hops(bid, 10000, 10000) GROUP BY auction, window_start) b
 JOIN (SELECT window_start, AVG(num) AS mean FROM (SELECT auction, window_start, COUNT(*) AS num FROM hops(bid, 10000, 10000) GROUP BY auction, window_start) c GROUP BY window_start) m
 ON b.window_start = m.window_start AND b.num > 2 * m.mean

-- next
-- Two left joins.
-- sources: person auction bid
CREATE TABLE three_tables AS SELECT p.id AS id, p.city, x.auctions, y.bids FROM (SELECT id, LATEST_BY_OFFSET(city) AS city FROM person GROUP BY id) p
 LEFT JOIN (SELECT seller, COUNT(*) AS auctions FROM auction GROUP BY seller) x ON p.id = x.seller
 LEFT JOIN (SELECT bidder, COUNT(*) AS bids FROM bid GROUP BY bidder) y ON p.id = y.bidder;

-- answer
SELECT p.id AS id, p.city, x.auctions, y.bids FROM person p
 LEFT JOIN (SELECT seller, COUNT(*) AS auctions FROM auction GROUP BY seller) x ON p.id = x.seller
 LEFT JOIN (SELECT bidder, COUNT(*) AS bids FROM bid GROUP BY bidder) y ON p.id = y.bidder

-- next
-- Sessions joined to names.
-- sources: bid person
CREATE TABLE sessions_joined AS WITH s AS (SELECT bidder, COUNT(*) AS n, window_start, window_end FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '5' SECOND)) GROUP BY bidder, window_start, window_end),
 p AS (SELECT id, LATEST_BY_OFFSET(name) AS name FROM person GROUP BY id)
 SELECT s.bidder, s.window_start, s.n, p.name FROM s JOIN p ON s.bidder = p.id;

-- answer
WITH s AS (SELECT bidder, COUNT(*) AS n, window_start, window_end FROM sessions(bid, bidder, 5000) GROUP BY bidder, window_start, window_end)
 SELECT s.bidder, s.window_start, s.n, p.name FROM s JOIN person p ON s.bidder = p.id

-- next
-- Expressions of both sides, and a constant.
-- sources: bid auction
CREATE STREAM joined_by_remainder AS SELECT b.auction, b.price, a.id FROM bid b JOIN auction a WITHIN UNBOUNDED ON MOD(b.auction, 50) = MOD(a.id, 50) AND b.channel = 'Apple' WHERE a.initialBid < 150;

-- answer
SELECT b.auction, b.price, a.id FROM bid b JOIN auction a ON b.auction % 50 = a.id % 50 AND b.channel = 'Apple' WHERE a.initialBid < 150
