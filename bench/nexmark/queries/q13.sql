-- Side input: each bid joined to a fixed table of 10,000 keys.
-- sources: bid side_input
CREATE STREAM q13 AS
  SELECT s.key, b.auction, b.bidder, b.price, b.dateTime, s.value
  FROM bid b JOIN side_input s ON MOD(b.auction, 10000) = s.key;

-- answer
SELECT s.key, b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid b JOIN side_input s ON b.auction % 10000 = s.key
